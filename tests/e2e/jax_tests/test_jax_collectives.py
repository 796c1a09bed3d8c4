"""Sums of unmodified programs, in every topology that the machine can hold."""

from __future__ import annotations

import pytest
from jax_launch import run_jax, skip_without_jax

skip_without_jax()

PROGRAM = "collective_checks.py"
# Devices that outnumber the cores, so that they must give way to each other.
CORES_OF_EIGHT = 2
NO_COMBINER = "--xla_disable_hlo_passes=cpu-all-reduce-combiner"


def digests(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("ok ")]


@pytest.mark.parametrize(
    ("count", "devices", "flags"),
    [
        pytest.param(2, 2, "", id="2x2"),
        pytest.param(4, 2, "", id="4x2"),
        pytest.param(1, 8, "", id="1x8-local"),
        pytest.param(2, 2, NO_COMBINER, id="2x2-uncombined"),
    ],
)
def test_every_check_in_every_topology(count: int, devices: int, flags: str) -> None:
    outputs = run_jax(
        PROGRAM,
        count=count,
        devices=devices,
        xla_flags=flags,
        timeout_s=400,
        cores=CORES_OF_EIGHT if devices == 8 else None,
    )
    assert len(digests(outputs[0])) >= 17
    for output in outputs[1:]:
        # Every process computed the same bits.
        assert digests(output) == digests(outputs[0])


def test_sixteen_calls_in_flight_stay_sixteen() -> None:
    """8 devices of one process, on two cores, start 16 uncombined sums in different orders;
    blocking handlers deadlock here."""
    outputs = run_jax(
        PROGRAM,
        count=1,
        devices=8,
        arguments=["many_independent_sums", "count_uncombined"],
        xla_flags=NO_COMBINER,
        timeout_s=120,
        cores=CORES_OF_EIGHT,
    )
    assert len(digests(outputs[0])) == 2


@pytest.mark.parametrize("transport", ["tcp", "shm"])
def test_each_transport(transport: str) -> None:
    run_jax(
        PROGRAM,
        count=2,
        devices=2,
        arguments=["psum_exact", "psum_int8_is_within_its_bound", "many_independent_sums"],
        environment={"TERSUM_E2E_TRANSPORT": transport},
    )
