"""Golden frames of the wire (tests/golden/wire), by the reader that was written from
docs/wire-format.md: what must be read and what must be refused, cut short at every byte; and the
page's worked frames. That tersum writes and refuses the same is tested in C++."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "golden" / "wire"))

import make_frames
from read_frames import DESCRIPTOR, READERS

TESTS = Path(__file__).resolve().parents[1]
LINES = make_frames.FILE.read_text().splitlines()
FRAMES = [line.split() for line in LINES if not line.startswith(("#", "refused"))]
REFUSED = [line.split()[1:] for line in LINES if line.startswith("refused")]
PAGE = (TESTS.parent / "docs" / "wire-format.md").read_text(encoding="utf-8")


def test_the_file_is_what_its_script_writes() -> None:
    assert [line for line in LINES if not line.startswith("#")] == list(make_frames.lines())


@pytest.mark.parametrize("words", FRAMES, ids=lambda words: "-".join(words[:2]))
def test_frames_have_their_fields(words: list[str]) -> None:
    what, _, *pairs, text = words
    expected = dict(pair.split("=", 1) for pair in pairs)
    found = READERS[what](bytes.fromhex(text))
    for name, value in found.items():
        absent = {"auth": "0", "frame_bytes": "128", "token": "00" * 16, "codec": ""}.get(name, "0")
        assert str(value) == expected.pop(name, absent), name
    assert not expected


@pytest.mark.parametrize("words", REFUSED, ids=lambda words: "-".join(words[:2]))
def test_frames_that_nobody_writes_are_refused(words: list[str]) -> None:
    what, why, text = words
    with pytest.raises(ValueError):
        READERS[what](bytes.fromhex(text))
    assert why


@pytest.mark.parametrize("words", FRAMES, ids=lambda words: "-".join(words[:2]))
def test_frames_cut_short_or_longer_are_refused(words: list[str]) -> None:
    frame = bytes.fromhex(words[-1])
    # A descriptor of open arrays begins with one of none.
    whole = {DESCRIPTOR.size} if words[0] == "descriptor" else set()
    for length in {*range(len(frame)), len(frame) + 1} - whole:
        with pytest.raises(ValueError, match=f"{length} bytes"):
            READERS[words[0]]((frame + b"\0")[:length])


@pytest.mark.parametrize("what", READERS)
def test_the_pages_worked_frames_are_those_of_the_file(what: str) -> None:
    """Bytes stand in backquotes; "n times `00`" is that many."""
    (paragraph,) = re.findall(rf"^Worked, a {what}: (.*?)\n\n", PAGE, re.DOTALL | re.MULTILINE)
    found = b"".join(
        bytes.fromhex(text) * int(times or 1)
        for times, text in re.findall(
            r"(?:(\d+) times )?`((?:[0-9a-f]{2})(?: [0-9a-f]{2})*)`", paragraph
        )
    )
    (worked,) = [words[-1] for words in FRAMES if words[:2] == [what, "worked"]]
    assert found.hex() == worked
