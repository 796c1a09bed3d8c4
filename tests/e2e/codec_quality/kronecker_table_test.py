"""The table of trained matrices: its drawn data, its captures and its rows."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "codec_quality"))

import kronecker_table

from tersum._captured_calls import read_capture


def test_drawn_data_are_of_their_kind() -> None:
    rows = (kronecker_table.RANKS, kronecker_table.ROWS, kronecker_table.CHANNELS)
    act = kronecker_table.draw("act", 1)
    assert act.tobytes() == kronecker_table.draw("act", 1).tobytes()
    assert act.tobytes() != kronecker_table.draw("act", 2).tobytes()
    sizes = np.sqrt(np.square(act.reshape(rows)).mean((0, 1)))
    assert [int(channel) for channel in np.flatnonzero(sizes > 30)] == [*kronecker_table.OUTLIERS]
    grad = np.abs(kronecker_table.draw("grad", 1))
    # What the ranks share is the size of each element.
    assert np.corrcoef(np.log(grad[0]), np.log(grad[1]))[0, 1] > 0.4


def test_captures_have_channels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kronecker_table, "CALLS", 2)
    monkeypatch.setattr(kronecker_table, "ROWS", 2)
    kronecker_table.capture_drawn(tmp_path / "act", "act")
    (site,) = read_capture(tmp_path / "act")
    assert (site.channels, site.ranks, len(site.calls)) == (4096, 8, 2)
    second = list(site.inputs(site.ranks))[1]
    np.testing.assert_array_equal(second, kronecker_table.draw("act", 1))


def test_rows_are_those_of_the_page() -> None:
    found = {
        "errors": {"plain": (0.5, 0.25), "kronecker": (0.125, 1.0)},
        "sides": [8, 16],
        "of_hadamard_and_diagonal": 0.75,
    }
    row = kronecker_table.row("*act*", found)
    assert row == "| *act* | 8 × 16 | 0.5000 (0.250) | 0.1250 (1.000) | 0.750 |"
    page = (Path(__file__).parents[3] / "docs" / "codecs.md").read_text()
    rows = [line for line in page.splitlines() if " × 16 | 0." in line or " × 128 | 0." in line]
    assert len(rows) == 6 and all(line.count("|") == 8 for line in rows)
