"""Our numbers of XLA's protobuf fields against the descriptors in whatever jaxlib is installed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "src" / "xla" / "hlo_proto.h"
sys.path.insert(0, str(ROOT / "tests" / "golden" / "hlo"))

import hlo_descriptors  # noqa: E402

pytest.importorskip("jaxlib", reason="the field numbers are compared with an installed jaxlib")


def our_fields() -> dict[str, dict[str, int]]:
    """The constants of namespace hlo_field in the header, by message."""
    text = HEADER.read_text()
    out: dict[str, dict[str, int]] = {}
    for message, body in re.findall(
        r"^namespace (\w+) \{\n((?:inline constexpr uint32_t .*\n)+)\}", text, re.MULTILINE
    ):
        out[message] = {
            name: int(number) for name, number in re.findall(r"uint32_t (\w+) = (\d+);", body)
        }
    return out


@pytest.fixture(scope="module")
def installed_fields() -> dict[str, dict[str, int]]:
    out: dict[str, dict[str, int]] = {}
    for name in (hlo_descriptors.DATA_FILE, hlo_descriptors.HLO_FILE):
        out |= hlo_descriptors.message_fields(hlo_descriptors.installed_descriptor(name))
    return out


def test_header_is_understood() -> None:
    ours = our_fields()
    constants = len(re.findall(r"uint32_t (?!k[A-Z])\w+ = \d+;", HEADER.read_text()))
    assert sum(len(fields) for fields in ours.values()) == constants
    assert ours["HloInstructionProto"]["opcode"] == 2


@pytest.mark.parametrize(
    ("message", "field"),
    [(message, field) for message, fields in our_fields().items() for field in fields],
)
def test_field_number(
    message: str, field: str, installed_fields: dict[str, dict[str, int]]
) -> None:
    assert message in installed_fields, f"jaxlib has no message {message} any more"
    assert field in installed_fields[message], f"{message} has no field {field} any more"
    assert installed_fields[message][field] == our_fields()[message][field]


def test_last_known_field(installed_fields: dict[str, dict[str, int]]) -> None:
    """Beyond this number a field counts as unknown, and might be a fifth encoding of the groups."""
    (constant,) = re.findall(r"kHloLastKnownField = (\d+);", HEADER.read_text())
    ours = int(constant)
    numbers = installed_fields["HloInstructionProto"].values()
    added = sorted(number for number in numbers if number > ours)
    if added:
        pytest.skip(
            f"this jaxlib has newer fields {added}: operations that carry them and none of "
            "the known group encodings are left alone"
        )
    assert max(numbers) == ours


def test_no_group_encoding_was_added(installed_fields: dict[str, dict[str, int]]) -> None:
    """An operation with a fifth encoding of the replica groups would be left alone."""
    known = {
        "replica_groups",
        "collective_device_list",
        "iota_collective_device_list",
        "mesh_axes_replica_group_list",
    }
    named = {
        field
        for field in installed_fields["HloInstructionProto"]
        if "replica_group" in field or "device_list" in field
    }
    assert named == known
