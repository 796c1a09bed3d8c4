"""Any format but Kronecker's on a 1 Gbit/s link within 4 % of its wire bound.

Speed is measured, not tested: this holds that the committed numbers say so, for every format that
is on the list, and that the page says what the numbers do.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "report"))

from link_codecs import LINK_CODECS

from tersum.codecs import codec_info

ROOT = Path(__file__).resolve().parents[2]
ROWS: list[dict[str, Any]] = json.loads((ROOT / "docs" / "codecs-1gbit.json").read_text())


def worst(row: dict[str, Any]) -> float:
    return max(*row["times_the_bound"], *row["in_place"])


def test_every_format_of_the_list_is_within_four_per_cent_of_its_wire() -> None:
    assert {row["codec"] for row in ROWS} == set(LINK_CODECS)
    assert all(1.0 <= worst(row) <= 1.04 for row in ROWS)


def test_the_list_has_no_format_twice_and_every_base_of_the_quality_table() -> None:
    assert len({codec_info(spec).spec for spec in LINK_CODECS}) == len(LINK_CODECS)
    table = (ROOT / "docs" / "codec-quality.md").read_text()
    specs = set(re.findall(r"^\| (\S+) \| [\d.]+ \|", table, re.MULTILINE))
    assert len(specs) > 100
    assert {spec for spec in specs if "FILE" not in spec} <= set(LINK_CODECS)


@pytest.mark.parametrize(
    ("least", "most"), [(1.0, 1.005), (1.005, 1.01), (1.01, 1.02), (1.02, 1.04)]
)
def test_the_page_places_each_by_its_worst_run(least: float, most: float) -> None:
    page = (ROOT / "docs" / "performance.md").read_text()
    section = page.partition("**Every codec on 1 Gbit/s**")[2]
    row = re.search(rf"^\| to {most} \| (.*) \|$", section, re.MULTILINE)
    assert row is not None
    # Numbers behind a name, and those after them, are no names.
    names = [part.split()[0] for part in row[1].split(", ") if not part[0].isdigit()]
    assert names == [row["codec"] for row in ROWS if least < worst(row) <= most]
