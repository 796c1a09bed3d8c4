"""The tables of `quality.py` in docs/demo.md, the files that they are made from, the picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quality import Quality

HEAD = "| spec | bits | over bf16 | error | cosine, mean | least |\n|---|---|---|---|---|---|"
#: The ranks of the picture.
DRAWN = 2


def row(quality: Quality) -> str:
    return (
        f"| `{quality.spec}` | {quality.bits:.2f} | {16 / quality.bits:.2f}x "
        f"| {quality.error:.4f} | {quality.cosine_mean:.6f} | {quality.cosine_least:.5f} |"
    )


def markdown(found: Sequence[Quality]) -> str:
    """One row per spec, as they come."""
    return "\n".join([HEAD, *map(row, found)])


def marks(ranks: int) -> tuple[str, str]:
    """What stands before and behind the table in the page."""
    return f"<!-- quality, {ranks} ranks: begin -->", f"<!-- quality, {ranks} ranks: end -->"


def table_in(page: str, ranks: int) -> str:
    """The one that stands there."""
    begin, end = marks(ranks)
    return page.split(begin)[1].split(end)[0].strip()


def numbers_path(docs: Path, ranks: int) -> Path:
    return docs / f"demo-quality-{ranks}.json"


def as_json(found: Sequence[Quality]) -> str:
    return json.dumps([asdict(quality) for quality in found], indent=1) + "\n"


def write(docs: Path, found: Sequence[Quality]) -> None:
    """Into demo-quality-RANKS.json and between the marks of demo.md; the picture, if it is due."""
    ranks = found[0].ranks
    numbers_path(docs, ranks).write_text(as_json(found))
    page = docs / "demo.md"
    text = page.read_text()
    begin, end = marks(ranks)
    before, rest = text.split(begin)
    page.write_text(f"{before}{begin}\n{markdown(found)}\n{end}{rest.split(end)[1]}")
    if ranks == DRAWN:
        from quality_plot import draw

        draw(found, docs / "figures" / "minilm-quality.svg")
