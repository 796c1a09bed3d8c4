"""Made-up rows of every measurement of the report, as its commands write them, for tests."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from report_measurements import measurements
from report_parts import parse_perf
from report_wires import CODECS, SWEEP, TOPOLOGY, study

Rows = list[dict[str, Any]]

SIZES = (64 << 10, 1 << 20)
LIBRARIES = ("gloo", "openmpi", "mpich", "oneccl")
_BITS = {"exact": 32.0, "bf16": 16.0, "int8/128": 8.125, "int4/128": 4.125}


def _noisy(value: float, random_: random.Random) -> float:
    return value * random_.uniform(0.97, 1.08)


def _sweep(name: str, sizes: tuple[int, ...], random_: random.Random) -> Rows:
    part = next(one for one in measurements() if one.name == name).parts[0]
    asked = parse_perf(part)
    rows = []
    for size in sizes:
        for codec in CODECS:
            found = study(asked.topology, asked.link, size, codec)
            times = {plan.plan: plan.time_s * 1e6 for plan in found.fitting}
            for plan in asked.plan:
                took = found.fitting[0].plan if plan == "auto" else plan
                rows.append(
                    {
                        **{"library": "tersum", "codec": codec, "plan": plan, "bytes": size},
                        **{"ranks": found.ranks, "wire_bound_us": found.bound_s * 1e6},
                        "time_us": _noisy(times[took], random_),
                        "predicted_us": times[took],
                        "explanation": f"{codec} {took}, expected 1.0 us: the fastest measured",
                    }
                )
    return rows


def _topology() -> Rows:
    bits = {codec: _BITS[codec] for codec in CODECS}
    return [{"codec": codec, "time_us": 1e4 * bits[codec]} for codec in bits]


def _perf(library: str, codec: str, size: int, **more: Any) -> dict[str, Any]:
    time_us = 5 + size * _BITS[codec] / 32 / 5e3
    return {"library": library, "codec": codec, "bytes": size, "time_us": time_us, **more}


def _peers(ranks: int, sizes: tuple[int, ...], random_: random.Random) -> Rows:
    rows = []
    for size in sizes:
        for library in ("tersum", "tersum-c++"):
            rows += [
                _perf(library, codec, size, ranks=ranks)
                for codec in ("exact", "int8/128", "int4/128")
            ]
        for library in LIBRARIES:
            slow = random_.uniform(0.9, 2) * (200 if library == "mpich" and ranks > 2 else 1)
            row = _perf(library, "exact", size, ranks=ranks)
            rows.append({**row, "time_us": row["time_us"] * slow})
    return rows


def _link(sizes: tuple[int, ...], random_: random.Random) -> Rows:
    rows = []
    for size in sizes:
        for codec in CODECS:
            row = _perf("bare", codec, size, wire_ratio=1.002)
            rows.append(row)
            slower = random_.uniform(1, 1.06)
            own = {"library": "tersum", "wire_ratio": 1.002 * slower}
            rows.append({**row, **own, "time_us": row["time_us"] * slower})
    return rows


def _auto(sizes: tuple[int, ...], random_: random.Random) -> Rows:
    return [
        {
            **{"bytes": size, "exact_us": 10.0, "auto_us": 10.0 * random_.uniform(0.25, 1.04)},
            **{"same_path": size == sizes[0], "slower": False},
        }
        for size in sizes
    ]


def _kernels(random_: random.Random) -> Rows:
    kernels = ("encode", "decode", "decode_add", "hop", "combine_1", "combine_3")
    codecs = (*_BITS, "int8/32", "nf4/64", "mxfp8:e4m3/32", "int8/128+hadamard")
    names = [
        {"isa": "avx2", "codec": codec, "kernel": name} for codec in codecs for name in kernels
    ]
    one = [{**name, "ratio_to_memcpy": random_.uniform(0.2, 1.3)} for name in names]
    both = [
        {**name, "cores": 2, "scaling_to_memcpy": random_.uniform(0.9, 1)}
        for name in names
        if name["codec"] in _BITS
    ]
    return one + both


def _model(sizes: tuple[int, ...], random_: random.Random) -> Rows:
    paths = [(codec, plan) for codec in ("exact", "int8/128") for plan in ("two_step", "ring")]
    paths += [("exact", "one_shot"), ("int6/128", "two_step"), ("auto", "auto")]
    return [
        {
            **{"transport": transport, "ranks": ranks, "bytes": size, "codec": codec},
            **{"plan": plan, "us": 10.0, "predicted_us": 10.0 * random_.lognormvariate(0, 0.2)},
            **({"best_us": 9.8} if codec == "auto" else {}),
        }
        for transport in ("tcp", "shm")
        for ranks in (2, 4)
        for size in sizes
        for codec, plan in paths
    ]


def _calls() -> Rows:
    rows = []
    for codec in ("exact", "int8/128"):
        for more in ({"link_bits_per_s": 10**9}, {}):
            rows.append(_perf("tersum", codec, 48 << 20, **more))
            rows.append(_perf("tersum", codec, 48 << 20, split="3 in flight", **more))
        for split, factor in (("", 1), ("1000 calls", 9), ("1000 coalesced", 1.2)):
            row = _perf("tersum", codec, 4096000, split=split)
            rows.append({**row, "time_us": factor * row["time_us"]})
    return rows


def sample_rows(name: str, sizes: tuple[int, ...] = SIZES) -> Rows:
    """Those of the measurement ``name``; the same on every call."""
    random_ = random.Random(name)
    kind, _, rest = name.partition("-")
    if name.startswith(SWEEP):
        return _sweep(name, sizes, random_)
    if name.startswith(TOPOLOGY):
        return _topology()
    if kind in ("tcp", "shm"):
        return _peers(int(rest), sizes, random_)
    if kind == "link":
        return _link(sizes, random_)
    if kind == "auto":
        return _auto(sizes, random_)
    if name in ("kernels", "floors"):
        return _kernels(random_)
    return _model(sizes, random_) if name == "model" else _calls()


def write_samples(folder: Path, sizes: tuple[int, ...] = SIZES) -> None:
    """Rows of every measurement, as measure_report.py writes them."""
    for measurement in measurements():
        rows = sample_rows(measurement.name, sizes)
        (folder / f"{measurement.name}.json").write_text(json.dumps(rows), encoding="utf-8")
