"""Any format but Kronecker's on a 1 Gbit/s link within 4 % of its wire bound.

Speed is measured, not tested: this holds that the committed numbers say so, for every format that
is on the list, and that the page's table is made of them.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "report"))

from link_codecs import LINK_CODECS
from link_table import DOCS, MARKS, PAGE, LinkRow, read_numbers, read_run, render, rows_of

from tersum.codecs import codec_info


def test_every_format_of_the_list_is_within_four_per_cent_of_its_wire() -> None:
    rows = read_numbers()
    assert sorted(row.codec for row in rows) == sorted(LINK_CODECS)
    assert all(1.0 <= row.worst <= 1.04 for row in rows)


def test_the_list_has_no_format_twice_and_every_one_of_the_quality_table() -> None:
    assert len({codec_info(spec).spec for spec in LINK_CODECS}) == len(LINK_CODECS)
    table = (DOCS / "codec-quality.md").read_text()
    specs = set(re.findall(r"^\| (\S+) \| [\d.]+ \|", table, re.MULTILINE))
    assert len(specs) > 100
    assert {spec for spec in specs if "FILE" not in spec} <= set(LINK_CODECS)


def test_the_page_has_the_committed_numbers() -> None:
    begin, end = MARKS
    assert PAGE.read_text().partition(begin)[2].partition(end)[0] == render(read_numbers())


def test_runs_become_rows(tmp_path: Path) -> None:
    """bf16 is in every part of a run: its worst counts."""
    measured = [("bf16", 1.0), ("int8", 1.002), ("bf16", 1.001), ("int8", 1.05)]
    measured += [("bf16", 1.003), ("bf16", 1.002)]
    rows = [{"codec": codec, "wire_ratio": ratio} for codec, ratio in measured]
    (tmp_path / "codecs-1gbit.json").write_text(json.dumps(rows))
    made = rows_of([read_run(tmp_path)] * 2)
    assert made == [
        LinkRow("bf16", [1.003, 1.003], [1.002, 1.002]),
        LinkRow("int8", [1.002, 1.002], [1.05, 1.05]),
    ]
    assert render(made).splitlines()[2:] == [
        "| to 1.005 | bf16 |",
        "| above 1.04 | int8 1.0020, 1.0020 / 1.0500, 1.0500 |",
    ]
