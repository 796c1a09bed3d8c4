"""bench/report/profile_calls.py: what it makes of the lines of ``perf report``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "report"))

from profile_calls import shares_of, table

REPORT = """
# Overhead  Shared Object      Symbol
#
    30.00%  tersum_all_reduce  [.] tersum::N_AVX3_DL::encode_slice<8, tersum::N_AVX3_DL::F>    -
    10.00%  tersum_all_reduce  [.] tersum::N_AVX3_DL::decode_whole_blocks<8>    -      -
    20.00%  [kernel.kallsyms]  [k] tcp_ack    -      -
    10.00%  [kernel.kallsyms]  [k] _copy_to_iter    -      -
     5.00%  libc.so.6          [.] __memmove_avx512_unaligned_erms    -      -
     4.00%  [kernel.kallsyms]  [k] do_sched_yield    -      -
     1.00%  tersum_all_reduce  [.] tersum::Operation::consume    -      -
     0.00%  tersum_all_reduce  [.] tersum::Operation::advance    -      -
"""


def test_every_function_is_of_one_kind() -> None:
    shares = shares_of(REPORT.splitlines())
    assert {kind: sum(share for share, _ in rows) for kind, rows in shares.items()} == {
        "coding": 40.0,
        "kernel": 20.0,
        "copying": 15.0,
        "waiting": 4.0,
        "engine": 1.0,
    }
    assert shares["engine"] == [(1.0, "Operation::consume")]


def test_the_table_has_shares_of_what_was_seen() -> None:
    lines = table(shares_of(REPORT.splitlines())).splitlines()
    assert [line.split()[0] for line in lines] == [
        *("coding", "kernel", "copying", "waiting", "engine")
    ]
    assert lines[0] == (
        "coding    50.0 %  N_AVX3_DL::encode_slice 38 %, N_AVX3_DL::decode_whole_blocks 12 %"
    )


def test_a_report_without_samples_gives_nothing() -> None:
    assert shares_of(["# no samples", ""]) == {}
