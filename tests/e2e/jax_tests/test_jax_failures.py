"""Errors of collectives inside JAX programs: exact enough to act on, in time, and survivable."""

from __future__ import annotations

import re
import signal

import pytest
from jax_launch import JaxProcesses, run_jax, skip_without_jax

skip_without_jax()

PROGRAM = "failure_checks.py"
TIMEOUT_S = 6.0
# A machine with more processes than cores may stall for a while.
SLACK_S = 20.0
# What lies between the moment at which a call has ended and that at which Python says so.
LATE_S = 5.0


def seconds_to_error(output: str, word: str = "error") -> tuple[float, str]:
    found = re.search(rf"^{word}: after ([\d.]+) s: (.*)$", output, re.MULTILINE)
    assert found, f"no line '{word}: …' in\n{output}"
    return float(found.group(1)), found.group(2)


def devices_blamed(message: str) -> set[tuple[int, int]]:
    """Devices and their ranks that an error gives as its cause; what comes before names the device
    that failed, and all of its group."""
    begin, found, cause = message.partition(" values, codec int8/128): ")
    assert found and "tersum all_reduce on device" in begin, message
    named = re.findall(r"device (\d+) \(rank (\d+)\)", cause)
    return {(int(device), int(rank)) for device, rank in named}


@pytest.mark.parametrize("combiner", [True, False], ids=["one-call", "four-calls"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_lost_peer_is_an_error_everywhere_before_the_deadline(
    number: signal.Signals, combiner: bool
) -> None:
    flags = "" if combiner else "--xla_disable_hlo_passes=cpu-all-reduce-combiner"
    # A killed peer is noticed when its connection closes, long before this deadline; a stopped one
    # at the deadline.
    timeout_s = 60.0 if number == signal.SIGKILL else TIMEOUT_S
    with JaxProcesses(
        PROGRAM,
        count=3,
        devices=2,
        arguments=["peer_lost"],
        xla_flags=flags,
        environment={"TERSUM_E2E_TIMEOUT_MS": str(int(timeout_s * 1000))},
    ) as processes:
        for index in range(3):
            processes.wait_for(index, "step", 90)
        processes.signal(1, number)
        survivors = processes.finish(120, only=[0, 2])
    for survivor in survivors:
        assert survivor.code == 0, survivor.output
        seconds, message = seconds_to_error(survivor.output)
        assert seconds < LATE_S + (0 if number == signal.SIGKILL else timeout_s)
        # Process 1 has the devices 2048 and 2049: of six, ranks 2 and 3.
        blamed = devices_blamed(message)
        assert blamed and blamed <= {(2048, 2), (2049, 3)}, message
        assert "memory is intact" in survivor.output
        seconds, message = seconds_to_error(survivor.output, "again")
        assert seconds < LATE_S
        assert devices_blamed(message) == blamed, message


def test_different_options_are_named() -> None:
    outputs = run_jax(PROGRAM, count=2, devices=2, arguments=["different_options"], timeout_s=90)
    for output in outputs:
        seconds, message = seconds_to_error(output)
        assert seconds < SLACK_S
        assert "process 0" in message and "process 1" in message
        assert "int8/128" in message and "int4/32" in message


def test_flatten_states_that_differ_are_an_error_and_not_noise() -> None:
    """One process resets, or loads, and the other does not."""
    outputs = run_jax(PROGRAM, count=2, devices=1, arguments=["different_states"], timeout_s=90)
    for output in outputs:
        messages = re.findall(r"^error: after ([\d.]+) s: (.*)$", output, re.MULTILINE)
        assert len(messages) == 2, output
        for seconds, message in messages:
            assert float(seconds) < SLACK_S
            assert "what +flatten, +clip or kmeans knows" in message, message
            assert "FAILED_PRECONDITION" in message, message
        assert "step" not in output  # nothing was summed under states that differ
        assert output.rstrip().endswith("equal again"), output


def test_different_programs_are_an_error_in_time() -> None:
    outputs = run_jax(PROGRAM, count=2, devices=2, arguments=["different_programs"], timeout_s=90)
    for output in outputs:
        seconds, message = seconds_to_error(output)
        assert seconds < TIMEOUT_S + LATE_S
        # No values: nothing tells what the other process waits for.
        assert "tersum all_reduce" in message and "did not enter the call" in message
        assert devices_blamed(message), message


def test_a_process_without_install_is_named() -> None:
    outputs = run_jax(
        PROGRAM, count=2, devices=1, arguments=["not_installed_everywhere"], timeout_s=90
    )
    seconds, message = seconds_to_error(outputs[0])
    assert seconds < 2 + SLACK_S
    assert "process 1 did not install tersum within 2000 ms" in message
    assert "tersum.jax.install()" in message
