"""The numbers of MiniLM's quality that docs/demo.md shows: every format, the bars, and the page.

`examples/minilm_demo/quality.py --write docs` measures them, in half an hour; here they are held as
they were committed, and that they are those of the formats as they are: the bits of all, and that
no spec is missing. tests/e2e/minilm_demo/minilm_quality_test.py runs the program in small;
scripts/demo holds the cosines of plain int8 once more, in a run of its own between two processes,
and ends with 1 where one is missed.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path

import pytest

import tersum

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "minilm_demo"))

import quality
import quality_page
from learned_formats import is_learned

DOCS = Path(__file__).parents[2] / "docs"
both = pytest.mark.parametrize("ranks", [2, 4])


@cache
def committed(ranks: int) -> dict[str, quality.Quality]:
    rows = json.loads(quality_page.numbers_path(DOCS, ranks).read_text())
    return {row["spec"]: quality.Quality(**row) for row in rows}


@both
def test_every_spec_is_there(ranks: int) -> None:
    found = committed(ranks)
    assert [*found] == quality.SPECS
    for spec, row in found.items():
        assert row.ranks == ranks
        assert row.error > 0 and row.cosine_least <= row.cosine_mean < 1.000001
        if not is_learned(spec):
            assert row.bits == tersum.codec_sum_bits(spec, ranks), spec


@both
def test_the_page_has_the_committed_numbers(ranks: int) -> None:
    page = (DOCS / "demo.md").read_text()
    table = quality_page.table_in(page, ranks)
    assert table == quality_page.markdown([*committed(ranks).values()])


def combination(spec: str) -> tuple[str, ...]:
    """Its base format and modifiers, without the block and what modifiers are told."""
    base, *modifiers = spec.split("+")
    return base.partition("/")[0], *(modifier.partition(":")[0] for modifier in modifiers)


def test_every_base_format_is_there() -> None:
    bases = {combination(spec)[0] for spec in quality.SPECS}
    lossy = {name for name in tersum.known_codecs() if not tersum.codec_info(name).lossless}
    learned = {"table:FILE", *(f"kmeans:{levels}" for levels in (2, 4, 8, 16))}
    assert bases == lossy | learned
    modifiers = {name for spec in quality.SPECS for name in combination(spec)[1:]}
    # +hops changes nothing where no sum is coded twice.
    assert modifiers == {
        *("feedback", "rows", "sparse", "flatten", "hadamard", "kronecker", "mixed", "adaptive"),
        *("clip", "shiftadd", "floor", "sr"),
    }


def test_every_combination_of_the_table_of_other_tensors_is_there() -> None:
    """That of docs/codec-quality.md, whose list is another program's; and what an example of the
    grammar names."""
    other = json.loads((DOCS / "codec-quality.json").read_text())
    specs = [spec for kind in other["kinds"].values() for spec in kind["specs"]]
    expected = {combination(spec) for spec in specs} | {("int4", "sparse", "flatten")}
    assert expected - {combination(spec) for spec in quality.SPECS} == set()


@pytest.mark.parametrize(
    ("spec", "ranks", "cosine"),
    [
        ("int8/128", 2, 0.9997),
        ("int8/32", 2, 0.9999),
        ("int8/128+flatten", 2, 0.99997),
        ("int8/128+flatten", 4, 0.99997),
        ("int6/128+flatten", 2, 0.99972),
        ("int6/128+flatten", 4, 0.99966),
        ("int5/128+flatten", 2, 0.9984),
        ("int5/128+flatten", 4, 0.9984),
    ],
)
def test_a_spec_reaches_its_cosine(spec: str, ranks: int, cosine: float) -> None:
    assert committed(ranks)[spec].cosine_mean >= cosine


@both
def test_flatten_at_six_bits_is_better_than_hadamard_and_much_shorter_than_bf16(ranks: int) -> None:
    found = committed(ranks)
    flatten, hadamard = found["int6/128+flatten"], found["int6/128+hadamard"]
    assert flatten.error <= 0.93 * hadamard.error
    assert 16 / flatten.bits >= 2.5


@both
def test_a_spec_of_four_and_a_half_bits_is_good_enough(ranks: int) -> None:
    best = max(row.cosine_mean for row in committed(ranks).values() if row.bits <= 4.5)
    assert best >= 0.9955
