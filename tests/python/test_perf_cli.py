"""``tersum perf`` and ``tersum info``: usage errors, the table, the JSON, the plot."""

from __future__ import annotations

import re
import socket
import sys
from pathlib import Path

import numpy as np
import pytest

import tersum
from tersum.cli import main
from tersum.cli.byte_sizes import format_bytes, parse_bytes, size_range
from tersum.cli.command_error import CommandError
from tersum.cli.perf_bare import BareStream
from tersum.cli.perf_case import on_lines
from tersum.cli.perf_options import OPS

sys.path.insert(0, str(Path(__file__).resolve().parent))

from perf_runs import COLUMNS, SMALL, perf, rows_of


@pytest.mark.parametrize(
    ("text", "count"),
    [("1", 1), ("64K", 65536), ("64KiB", 65536), ("2m", 2 << 20), ("1G", 1 << 30)],
)
def test_sizes(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "K", "-1", "1.5M", "1T", "8388609G", "9" * 30])
def test_bad_sizes_say_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match=r"bad size .*G"):
        parse_bytes(text)


def test_size_range() -> None:
    assert size_range(64, 1000, 4) == [64, 256]
    assert size_range(10, 10, 2) == [10]
    assert size_range(2, 16, 1.5) == [2, 3, 4, 7, 10, 15]
    assert format_bytes(65536) == "64 KiB" and format_bytes(1500) == "1.465 KiB"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--op", "scan"], "invalid choice: 'scan'"),
        (["--plan", "two_step,bush"], "bad name 'bush'"),
        (["--min-bytes", "64Q"], "bad size '64Q'"),
        (["--min-bytes", "0"], "must be at least one byte"),
        (["--min-bytes", "2M", "--max-bytes", "1M"], "--min-bytes 2097152 is above"),
        (["--factor", "1"], "must be above 1"),
        (["--ranks", "0"], "must be 1 or more"),
        (["--metrics-port", "0"], "must be 1 to 65535"),
        (["--coalesce", "3", "--op", "broadcast"], "--coalesce and --in-flight are for"),
        (["--in-flight", "0"], "must be 1 or more"),
        (["--iters", "x"], "x"),
        (["--codec", "int9"], "int9"),
        (["--codec", "int8/48"], "48"),
        (["--compare", "nccl"], "bad name 'nccl'"),
        (["--link", "fast"], "bad link rate 'fast'"),
        (["--dtype", "bool"], "invalid choice: 'bool'"),
        (["--op", "all_gather", "--plan", "one_shot"], "one_shot is for all_reduce"),
        (["--link", "1gbit", "--ranks", "1"], "joins 2 ranks or more"),
    ],
)
def test_usage_errors(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = main(["perf", *arguments])
    except SystemExit as end:
        status = int(str(end.code))
    assert status == 2
    assert words in capsys.readouterr().err


def test_json_has_exactly_the_columns(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    done = perf("--codec", "exact,int8", "--plan", "two_step", "--json", str(path), *SMALL)
    assert done.returncode == 0, done.stderr
    rows = rows_of(path)
    assert [(row["bytes"], row["codec"]) for row in rows] == [
        (4096, "exact"),
        (4096, "int8/128"),
        (16384, "exact"),
        (16384, "int8/128"),
    ]
    for row in rows:
        assert list(row) == COLUMNS
        assert row["library"] == "tersum" and row["ranks"] == 2 and row["wrong"] == 0
        assert row["count"] * 4 == row["bytes"]
        assert 0 < row["time_us_min"] <= row["time_us"] <= row["time_us_max"]
        assert row["predicted_us"] is None  # nobody tuned
        assert len(row["core_distances_ns"]) == 2
        assert all(ns is None or 1 < ns < 1e4 for ns in row["core_distances_ns"])
        # 2 ranks: the factor of bus bandwidth is 1.
        assert row["busbw_gb_s"] == pytest.approx(row["bytes"] / row["time_us"] / 1e3)
    assert rows[2]["wire_bytes"] == 16384 and rows[3]["wire_bytes"] == 16384 // 512 * 130
    assert rows[2]["rel_error"] < 1e-6 < 1e-3 < rows[3]["rel_error"] < 0.02
    lines = done.stdout.splitlines()
    assert len([line for line in lines if not line.startswith("#")]) == 4
    assert "wrong elements: 0" in done.stdout


def test_explain_says_what_auto_chose_why_and_what_was_weighed(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    done = perf(
        *("--codec", "auto", "--explain", "--json", str(path), *SMALL),
        env={"TERSUM_CACHE_DIR": ""},
    )
    assert done.returncode == 0, done.stderr
    explained = [line for line in done.stdout.splitlines() if "weighed" in line]
    assert len(explained) == 2
    codecs, plans = {"exact", "bf16", "int8/128", "int4/128"}, {"two_step", "one_shot"}
    for row, line in zip(rows_of(path), explained, strict=True):
        assert line == f"#   {row['explanation']}"
        match = re.fullmatch(
            r"(\S+) (\S+), expected ([\d.]+) us: (.+?) \(weighed: (.+?)\)"
            r"(; links: [\d.]+ us a hop, \S+ GB/s from a rank)?",
            row["explanation"],
        )
        assert match is not None, line
        codec, plan, expected, reason, weighed = match.groups()[:5]
        assert codec in codecs - {"int4/128"} and plan in plans and reason
        options = [option.split() for option in weighed.split("; ")]
        assert {tuple(option[:2]) for option in options} <= {(c, p) for c in codecs for p in plans}
        assert {option[0] for option in options} >= {"exact", "int8/128"}
        assert options[0][:2] == [codec, plan] and options[0][3] == "us"
        assert float(options[0][2]) == float(expected) > 0


def test_rows_of_a_tuned_group_have_a_prediction(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    codecs = ("--codec", "exact,int8,int4/32+hadamard,int8/128+flatten")
    done = perf(
        *("--predict", *codecs, "--plan", "two_step,tree", "--json", str(path), *SMALL),
        env={"TERSUM_CACHE_DIR": ""},
    )
    assert done.returncode == 0, done.stderr
    for row in rows_of(path):
        known = row["plan"] == "two_step" and "flatten" not in row["codec"]
        assert (row["predicted_us"] is not None) == known, row
        assert not known or row["predicted_us"] > 0
    done = perf("--predict", "--op", "all_gather", "--json", str(path), *SMALL)
    assert [row["predicted_us"] for row in rows_of(path)] == [None, None]


def test_ranks_read_the_files_that_codecs_name(tmp_path: Path) -> None:
    table = tmp_path / "levels.txt"
    table.write_text("-1 -0.3 0.2 1\n")
    path = tmp_path / "rows.json"
    done = perf("--codec", f"table:{table}/64", "--json", str(path), *SMALL)
    assert done.returncode == 0, done.stderr
    assert all(row["rel_error"] < 0.5 for row in rows_of(path))


def test_bounds_know_how_far_blocks_reach(tmp_path: Path) -> None:
    """Blocks of up to 1,024 values, and blocks that begin anew with each row."""
    path = tmp_path / "rows.json"
    codecs = "int4/128+adaptive,int8+rows:100,int4/64+mixed,int6+rows:1000+sparse:1%,"
    codecs += "int2/32+clip:learned"
    done = perf(
        *("--codec", codecs, "--ranks", "2", "--json", str(path)),
        *("--min-bytes", "2M", "--max-bytes", "2M", "--iters", "2", "--warmup", "0"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [row["wrong"] for row in rows_of(path)] == [0, 0, 0, 0, 0]


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "uint8"])
def test_every_collective_is_right(tmp_path: Path, op: str, dtype: str) -> None:
    path = tmp_path / "rows.json"
    codecs = "exact,int8/32,int4" if dtype in ("float32", "bfloat16") else "exact"
    done = perf(
        *("--op", op, "--dtype", dtype, "--codec", codecs, "--ranks", "3", "--json", str(path)),
        *("--min-bytes", "10000", "--max-bytes", "10000", "--iters", "2", "--warmup", "0"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = rows_of(path)
    assert len(rows) == len(codecs.split(",")) and all(row["wrong"] == 0 for row in rows)
    lossless = op not in ("all_reduce", "reduce_scatter") or dtype in ("int64", "uint8")
    assert (rows[0]["rel_error"] == 0) == lossless or rows[0]["rel_error"] < 1e-2


@pytest.mark.parametrize("op", ["all_to_all", "gather", "scatter"])
def test_moves_beside_gloo(tmp_path: Path, op: str) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    path = tmp_path / "rows.json"
    done = perf(
        *("--op", op, "--codec", "exact", "--transport", "tcp", "--compare", "gloo"),
        *("--ranks", "3", "--json", str(path), *SMALL),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = rows_of(path)
    assert [row["library"] for row in rows] == ["tersum", "gloo"] * 2
    assert all(row["wrong"] == 0 for row in rows)
    # Of 16 KiB, whole elements: a rank's own part of a gather, else the two parts of others.
    part = 16384 // 4 // 3 * 4
    sent = part if op == "gather" else 2 * part
    assert [row["wire_bytes"] for row in rows[2:]] == [sent, sent]


def test_a_rank_that_sends_nothing(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    done = perf("--op", "broadcast", "--codec", "exact", "--json", str(path), *SMALL)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [row["wire_bytes"] for row in rows_of(path)] == [4096, 16384]


def test_an_array_cut_into_tensors_and_into_calls(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    done = perf(
        *("--coalesce", "7", "--in-flight", "3", "--codec", "exact,int8", "--json", str(path)),
        *("--min-bytes", "100000", "--max-bytes", "100000", "--iters", "2", "--warmup", "1"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = rows_of(path)
    splits = ["7 calls", "7 coalesced", "7 scattered", "3 in flight"]
    assert [row["split"] for row in rows] == 2 * splits
    assert all(row["wrong"] == 0 and row["bytes"] == 100_000 for row in rows)
    # What travels is the same, but for a block that a cut leaves unfilled.
    sent = [row["wire_bytes"] for row in rows[:4]]
    assert max(sent) - min(sent) <= 7 * 4096 and min(sent) >= 100_000 * 0.99
    assert "exact auto (7 coalesced)" in done.stdout


def test_short_calls_are_held_to_the_bound_of_the_plan_that_they_take() -> None:
    # The whole array goes by two_step, each of its tensors by one_shot, whose errors differ.
    done = perf(
        *("--coalesce", "1000", "--codec", "int8", "--transport", "tcp", "--iters", "1"),
        *("--min-bytes", "4096000", "--max-bytes", "4096000", "--warmup", "1"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# wrong elements: 0" in done.stdout


@pytest.mark.parametrize("op", ["all_reduce", "reduce_scatter"])
def test_formats_with_one_scale_for_a_call_are_held_to_that(op: str) -> None:
    # The scale is for the largest of all values, which few blocks have.
    done = perf(
        *("--op", op, "--codec", "sum8:tensor,sum:exp", "--transport", "tcp", "--iters", "1"),
        *("--min-bytes", "1M", "--max-bytes", "1M", "--warmup", "1"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# wrong elements: 0" in done.stdout


@pytest.mark.parametrize("behind_line", [0, 2, 16, 62])
def test_measured_arrays_begin_on_cache_lines(behind_line: int) -> None:
    memory = np.empty(64 + 64 + 2 * 1001, np.uint8)
    begin = -memory.ctypes.data % 64 + behind_line
    values = memory[begin : begin + 2 * 1001].view(np.uint16)
    values[:] = np.arange(1001)
    moved = on_lines(values)
    assert moved.ctypes.data % 64 == 0 and moved.flags.c_contiguous
    assert moved.dtype == values.dtype and np.array_equal(moved, values)
    assert np.shares_memory(moved, values) == (behind_line == 0)


@pytest.mark.parametrize("redop", ["avg", "max", "min"])
def test_other_reductions(tmp_path: Path, redop: str) -> None:
    path = tmp_path / "rows.json"
    done = perf("--redop", redop, "--codec", "int8", "--json", str(path), *SMALL)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(row["wrong"] == 0 for row in rows_of(path))


def test_named_candidates_are_one_contender(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    # A plan that tuning does not measure: what the error allows is taken, not what is faster here.
    how = ("--plan", "bidirectional_ring", "--transport", "tcp", "--explain", "--iters", "3")
    sizes = ("--min-bytes", "1M", "--max-bytes", "1M", "--warmup", "2", "--max-rel-error", "0.2")
    done = perf("--codec", "exact,auto:int5/64|int8", *how, *sizes, "--json", str(path))
    assert done.returncode == 0, done.stdout + done.stderr
    exact, chosen = rows_of(path)
    assert chosen["codec"] == "auto:int8/128|int5/64"
    assert chosen["wrong"] == 0 and 0.01 < chosen["rel_error"] < 0.2
    # 5.25 of 32 bits; one call in 64, by lot, sends 8 runs of 512 doubles before (and 4 of
    # what they say). int8 would be 8.125 bits: 0.254.
    sample_bytes = 8 * (8 * 512 + 4)
    assert chosen["wire_bytes"] - 0.165 * exact["wire_bytes"] <= sample_bytes
    assert "int5/64 lost" in done.stdout


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--codec", "auto:int8|int4"), "pass --max-rel-error"),
        (("--codec", "auto:", "--max-rel-error", "0.1"), "empty place"),
        (("--codec", "auto:int8|itn4", "--max-rel-error", "0.1"), "did you mean"),
        (("--codec", "auto:int8|int2+feedback", "--max-rel-error", "0.1"), "given back"),
    ],
)
def test_wrong_candidates_are_refused(options: tuple[str, ...], why: str) -> None:
    done = perf(*options, *SMALL)
    assert done.returncode == 2 and why in done.stderr


def test_compare_gloo(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    path = tmp_path / "rows.json"
    done = perf("--compare", "gloo", "--transport", "tcp", "--json", str(path), *SMALL)
    assert done.returncode == 0, done.stderr
    libraries = [row["library"] for row in rows_of(path)]
    assert libraries == ["tersum", "gloo", "tersum", "gloo"]
    assert all(row["wrong"] == 0 for row in rows_of(path))


def test_compare_bare(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    sizes = ("--min-bytes", "1M", "--max-bytes", "1M", "--iters", "3", "--warmup", "1")
    options = ("--compare", "bare", "--transport", "tcp", "--codec", "int8,lut2,int8,auto")
    done = perf(*options, "--json", str(path), *sizes)
    assert done.returncode == 0, done.stderr
    rows = {(row["library"], row["codec"]): row for row in rows_of(path)}
    assert [key for key in rows if key[0] == "bare"] == [("bare", "int8/128"), ("bare", "lut2/32")]
    for codec in ("int8/128", "lut2/32"):
        bare = rows["bare", codec]
        # As many bytes as the call; its slices' own are the rest.
        assert bare["wire_bytes"] == tersum.codec_wire_bytes(codec, 1 << 18)
        assert bare["wire_bytes"] <= rows["tersum", codec]["wire_bytes"] < 1.01 * bare["wire_bytes"]
        assert bare["time_us"] > 0 and bare["wrong"] == 0 and bare["rel_error"] == 0


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--transport", "tcp", "--ranks", "3"], "use --ranks 2"),
        (["--transport", "tcp", "--op", "broadcast"], "use --op all_reduce"),
        (["--transport", "shm"], "use --transport tcp or --link"),
        ([], "use --transport tcp or --link"),
    ],
)
def test_what_a_bare_stream_cannot_stand_for(arguments: list[str], why: str) -> None:
    done = perf("--compare", "bare", *arguments, *SMALL)
    assert done.returncode == 0, done.stderr
    assert "# bare skipped: " in done.stdout and why in done.stdout


def test_a_bare_stream_whose_peer_is_gone_or_stands_still() -> None:
    here, there = socket.socketpair()
    stream = BareStream(here, timeout_ms=50)
    with pytest.raises(CommandError, match="stood still for 50 ms"):
        stream.exchange(1 << 24)
    there.close()
    with pytest.raises(CommandError, match=r"the bare stream ended: .*(gone|Broken pipe|reset)"):
        stream.exchange(1 << 24)
    here.close()


def test_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    path = tmp_path / "rows.png"
    done = perf("--codec", "exact,int8", "--plot", str(path), *SMALL)
    assert done.returncode == 0, done.stderr
    assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 20_000


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    done = perf("--json", str(tmp_path / "none" / "rows.json"), *SMALL)
    assert done.returncode == 1 and "cannot write" in done.stderr


def test_info_tells_what_it_sees(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info"]) == 0
    out = capsys.readouterr().out
    facts = dict(line.split("  ", 1) for line in out.splitlines())
    assert facts["tersum"].strip() == tersum.__version__
    assert tersum.isa() in facts["isa"] and "scalar" in facts["available isas"]
    for name in ("wire version", "transports", "boot id", "network namespace", "jax", "torch"):
        assert facts[name].strip()
