"""The list of all measurements of the report, each for one group of numbers in
docs/performance.md."""

from __future__ import annotations

from report_parts import Measurement, Part, calls, perf, span
from report_wires import wire_measurements

CODEC_BENCH = "bench/codec/codec_bench"
PACKED_BENCH = "bench/codec/packed_sum_bench"

# (transport, ranks): rows of (array, timed calls, timed calls of those that spin).
_PEER_SIZES = {
    ("tcp", 2): (("64K", 2000, 0), ("1M", 500, 0), ("16M", 40, 0), ("256M", 7, 0)),
    ("tcp", 4): (("64K", 1000, 40), ("1M", 300, 30), ("16M", 40, 15)),
    ("shm", 2): (("64K", 2000, 0), ("1M", 500, 0), ("16M", 40, 0), ("256M", 7, 0)),
    ("shm", 4): (("64K", 2000, 60), ("1M", 500, 30), ("16M", 40, 15), ("256M", 5, 2)),
    ("shm", 8): (("64K", 1000, 20), ("1M", 200, 10), ("16M", 20, 10), ("256M", 3, 2)),
}
# They wait without giving the core away: with several ranks on one a call takes 20 to 500 ms, and
# the others, measured with as few calls, would not be past their first hundred, which are slower.
_SPINNING = "mpich,oneccl"
_IN_PLACE = ("16M", "256M")

_AUTO = {
    "auto-shm": ("--transport", "shm"),
    "auto-tcp": ("--transport", "tcp"),
    "auto-shm-within": ("--transport", "shm", "--max-rel-error", "1e-2"),
    "auto-tcp-within": ("--transport", "tcp", "--max-rel-error", "1e-2"),
    "auto-shm-loose": ("--transport", "shm", "--max-rel-error", "7e-2"),
    "auto-tcp-loose": ("--transport", "tcp", "--max-rel-error", "7e-2"),
    "auto-10gbit": ("--link", "10gbit", "--slow", "4"),
    "auto-5gbit": ("--link", "5gbit", "--slow", "4"),
    "auto-1gbit": ("--link", "1gbit", "--slow", "16"),
}

_OTHER_FORMATS = (
    *("int6/128", "int3/32", "int1/64", "five/32", "nf4/64", "mxint8", "fp8e4m3/128"),
    *("mxfp8:e4m3", "mxfp6:e2m3", "mxfp4", "nvfp4", "int8/128+hadamard", "int8/128+flatten"),
)


def _peers(transport: str, ranks: int, quick: bool) -> Measurement:
    how = ("--ranks", str(ranks), "--transport", transport)
    rows = (("64K", 3, 0),) if quick else _PEER_SIZES[transport, ranks]
    parts = []
    for size, iterations, of_spinning in rows:
        each = (*how, *span(size, size), *(("--in-place",) if size in _IN_PLACE else ()))
        # Five jobs of 256 MiB leave a small machine no memory: tersum takes part from Python alone.
        own = "" if size == "256M" else ",tersum-c++"
        against = ("gloo,openmpi" if of_spinning else "all") + own
        against_all = (*each, "--codec", "exact,int8,int4", "--compare", against)
        parts.append(perf(*against_all, *calls(iterations, min(iterations, 20))))
        if of_spinning:
            slow = ("--codec", "exact", "--compare", _SPINNING)
            parts.append(perf(*each, *slow, *calls(of_spinning, 1)))
    return Measurement(f"{transport}-{ranks}", tuple(parts))


def _auto(name: str, quick: bool) -> Measurement:
    arguments = _AUTO[name]
    if quick:
        arguments += ("--from-bytes", "64K", "--to-bytes", "256K", "--slow", "2000")
    link = "--link" in arguments
    part = Part(
        "script",
        arguments,
        "tuning/auto_sweep.py",
        needs=("namespaces",) if link else (),
        verdicts=(1,),  # auto was slower somewhere: a result
    )
    return Measurement(name, (part,))


def _kernels(quick: bool) -> Measurement:
    def program(*arguments: str) -> Part:
        rounds = ("--rounds", "7") if quick else ()
        return Part("program", (*arguments, *rounds), CODEC_BENCH)

    formats = [word for spec in _OTHER_FORMATS for word in ("--codec", spec)]
    scaling = ("--cores", "2", "--codec", "exact", "--codec", "bf16", "--codec", "int8/128")
    return Measurement(
        "kernels", (program(), program(*formats), program(*scaling, "--codec", "int4/128"))
    )


def _floors(quick: bool) -> Measurement:
    """A speed below its floor fails. Few rounds say nothing, so that none fails there."""
    few = ("--rounds", "7") if quick else ()
    verdicts = (1,) if quick else ()
    return Measurement(
        "floors",
        tuple(
            Part("program", ("--check", *few), program, verdicts=verdicts)
            for program in (CODEC_BENCH, PACKED_BENCH)
        ),
    )


def _model(quick: bool) -> Measurement:
    arguments: tuple[str, ...] = ("--seconds", "0.8")
    if quick:
        arguments = ("--seconds", "0.02", "--ranks", "2", "--to-bytes", "256K")
    return Measurement("model", (Part("script", arguments, "tuning/model_check.py"),))


def _tracing(quick: bool) -> Measurement:
    rounds = ("--rounds", "1") if quick else ()
    return Measurement("tracing", (Part("script", rounds, "tuning/trace_cost.py"),))


def _calls(quick: bool) -> Measurement:
    codecs = ("--codec", "exact,int8")
    flight = ("--in-flight", "3", *codecs, *(span("192K", "192K") if quick else span("48M", "48M")))
    tensors = ("--transport", "tcp", *codecs, *span("4096000", "4096000"))
    few, many = (2, 2) if quick else (10, 30)
    return Measurement(
        "calls",
        (
            perf("--link", "1gbit", *flight, *calls(few)),
            perf("--transport", "tcp", *flight, *calls(many)),
            perf("--coalesce", "1000", *tensors, *calls(min(many, 20))),
            perf(*tensors, *calls(min(many, 20))),
        ),
    )


def measurements(quick: bool = False) -> list[Measurement]:
    """All, in the order in which they run; ``quick``: small arrays and a few calls, which shows
    that everything runs and measures nothing."""
    return [
        *wire_measurements(quick),
        *(_peers(transport, ranks, quick) for transport, ranks in _PEER_SIZES),
        *(_auto(name, quick) for name in _AUTO),
        _kernels(quick),
        _floors(quick),
        _model(quick),
        _calls(quick),
        _tracing(quick),
    ]
