"""How good MiniLM's embeddings stay in each format: a table and a plot of quality against bits.

    python examples/minilm_demo/quality.py [--ranks 2] [--specs int8/128,int6/128+flatten] [--out D]

The model is split over `--ranks` devices of one process, whose all-reduces all go through tersum.
Per spec: the mean and the least cosine of the embeddings to those of the unsplit model, and the
relative error of one all-reduce, mean over the model's twelve. The first batch is left out: it is
what `+flatten` calibrates itself on. Nothing is calibrated for, or tuned on, these texts.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

BASES = {
    "int8/32": ("",),
    "int8/128": ("", "+hadamard", "+flatten", "+rows:384"),
    "int7/128": ("", "+hadamard", "+flatten"),
    "int6/128": ("", "+hadamard", "+flatten", "+mixed", "+sparse:0.5%"),
    "int5/128": ("", "+hadamard", "+flatten"),
    "int4/32": ("", "+hadamard", "+flatten", "+mixed", "+hadamard+sr", "+shiftadd"),
    "int4/128": ("", "+hadamard", "+flatten", "+mixed", "+adaptive", "+clip:learned"),
    "int4/64": ("+adaptive",),
    "int4/1024": ("+sparse:0.2%",),
    "int3/32": ("", "+flatten"),
    "five/32": ("", "+flatten"),
    "int2/32": ("", "+flatten", "+feedback"),
    "int1/32": ("", "+flatten"),
    "fp8e4m3/128": ("", "+flatten"),
    "fp8e5m2/128": ("", "+flatten"),
    "mxfp8:e4m3": ("", "+flatten"),
    "mxfp8:e5m2": ("",),
    "mxfp6:e2m3": ("", "+flatten"),
    "mxfp6:e3m2": ("",),
    "mxint8": ("", "+flatten"),
    "mxfp4": ("", "+flatten"),
    "nvfp4": ("", "+flatten"),
    "nf4/64": ("", "+hadamard", "+flatten"),
    "sum8/32": ("",),
    "sum8/256": ("",),
    "sum8:tensor": ("",),
    "sum:exp": ("",),
    "lut2/32": ("",),
}
SPECS = ["bf16", *(base + modifier for base, ways in BASES.items() for modifier in ways)]


#: Batches whose all-reduces are looked at one by one; they take 36 MiB a rank each.
ERROR_BATCHES = 5


@dataclass(frozen=True)
class Quality:
    """Of one spec."""

    spec: str
    ranks: int
    bits: float  # on the wire, per value
    cosine_mean: float
    cosine_least: float
    error: float  # of one all-reduce, relative


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--ranks", type=int, default=2, choices=(2, 3, 4, 6, 12), help="they share its 12 heads"
    )
    parser.add_argument("--specs", default=",".join(SPECS))
    parser.add_argument("--batches", type=int, default=13, help="the first of them is left out")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--out", type=Path, default=Path("build/quality"))
    args = parser.parse_args()
    if args.batches < 2:
        parser.error("--batches must be 2 or more: the first is left out")
    from tersum.codecs import codec_info

    for spec in args.specs.split(","):
        codec_info(spec)  # before minutes of work
    return args


def measure(args: argparse.Namespace) -> list[Quality]:
    """Every spec in turn. JAX must not have been imported before."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["JAX_NUM_CPU_DEVICES"] = str(args.ranks)
    import jax
    import numpy as np
    from embed import Encoder, load_batches
    from model import forward, load_params
    from partial_sums import all_reduce_errors, partial_sums

    import tersum.jax
    from tersum.codecs import codec_sum_bits

    batches = load_batches(args.batch_size, args.batches, args.tokens)
    params = load_params()
    texts = list(zip(batches.ids, batches.masks, strict=True))
    whole = jax.jit(forward)
    exact = np.concatenate([np.asarray(whole(params, *text)) for text in texts[1:]])
    sums = [partial_sums(params, *text, args.ranks) for text in texts[:ERROR_BATCHES]]
    found = []
    for spec in args.specs.split(","):
        tersum.jax.install(codec=spec, local=True, min_bytes=0)
        encoder = Encoder(params)
        vectors = np.concatenate([encoder(*text) for text in texts][1:])
        tersum.jax.uninstall()
        cosines = (exact.astype(np.float64) * vectors).sum(1)
        found.append(
            Quality(
                spec,
                args.ranks,
                codec_sum_bits(spec, args.ranks),
                float(cosines.mean()),
                float(cosines.min()),
                float(np.mean(all_reduce_errors(spec, sums)[1:])),
            )
        )
        print(row(found[-1]), flush=True)
    return found


def row(quality: Quality) -> str:
    return (
        f"| {quality.spec} | {quality.bits:.2f} | {16 / quality.bits:.2f} | {quality.error:.4f} "
        f"| {quality.cosine_mean:.6f} | {quality.cosine_least:.5f} |"
    )


def main() -> None:
    args = parse_arguments()
    print(f"MiniLM-L6 over {args.ranks} ranks, {args.batches - 1} batches after the first")
    print("| spec | bits | over the bf16 wire | error of one sum | cosine, mean | least |")
    print("|---|---|---|---|---|---|", flush=True)
    found = measure(args)
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / f"quality_{args.ranks}.json"
    path.write_text(json.dumps([asdict(quality) for quality in found], indent=1) + "\n")
    from quality_plot import draw

    draw(found, args.out / f"quality_{args.ranks}.svg")
    print(f"{path}, and its picture beside it")


if __name__ == "__main__":
    main()
