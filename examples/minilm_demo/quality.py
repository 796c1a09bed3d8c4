"""How good MiniLM's embeddings stay in each format: a table and a plot of quality against bits.

    python examples/minilm_demo/quality.py [--ranks 2] [--specs int8/128,…] [--write docs]

The model is split over `--ranks` devices of one process, whose all-reduces all go through tersum.
Per spec: the mean and the least cosine of the embeddings to those of the unsplit model, and the
relative error of one all-reduce, mean over the model's twelve. The first batch is left out: it is
what `+flatten` calibrates itself on, and what tables and the matrices of `+kronecker` are learned
from. Nothing is calibrated for, or tuned on, the texts that count. `--write` puts the table, its
numbers and the picture into the docs. Takes about a quarter of an hour on two cores.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BASES = {
    "int8/32": ("", "+shiftadd"),
    "int8/128": (
        *("", "+hadamard", "+flatten", "+kronecker:FILE", "+rows:384", "+shiftadd", "+sr"),
        "+sparse:0.2%",
    ),
    "int7/128": ("", "+hadamard", "+flatten"),
    "int6/128": ("", "+hadamard", "+flatten", "+kronecker:FILE", "+mixed", "+sparse:0.5%"),
    "int5/128": ("", "+hadamard", "+flatten"),
    "int4/32": (
        *("", "+hadamard", "+flatten", "+mixed", "+hadamard+sr", "+shiftadd"),
        "+sparse:0.5%+flatten",
    ),
    "int4/128": (
        *("", "+hadamard", "+flatten", "+kronecker:FILE", "+mixed", "+adaptive"),
        *("+hadamard+sr", "+clip:learned", "+hadamard+clip:learned"),
    ),
    "int4/64": ("+adaptive",),
    "int4/1024": ("+sparse:0.2%",),
    "int3/32": ("", "+hadamard", "+flatten", "+mixed"),
    "five/32": ("", "+hadamard", "+flatten", "+sr"),
    "int2/32": ("", "+hadamard", "+flatten", "+clip:learned", "+feedback"),
    "int1/32": ("", "+hadamard", "+flatten"),
    "fp8e4m3/32": ("", "+flatten"),
    "fp8e4m3/128": ("", "+hadamard", "+flatten", "+sr"),
    "fp8e5m2/32": ("", "+flatten"),
    "fp8e5m2/128": ("", "+hadamard", "+flatten"),
    "mxfp8:e4m3": ("", "+hadamard", "+flatten", "+floor", "+sr"),
    "mxfp8:e5m2": ("", "+hadamard", "+flatten", "+floor"),
    "mxfp6:e2m3": ("", "+hadamard", "+flatten", "+floor"),
    "mxfp6:e3m2": ("", "+hadamard", "+flatten", "+floor"),
    "mxint8": ("", "+hadamard", "+flatten", "+floor", "+shiftadd"),
    "mxfp4": ("", "+hadamard", "+flatten", "+floor"),
    "nvfp4": ("", "+hadamard", "+flatten"),
    "nf4/64": ("", "+hadamard", "+flatten", "+sr"),
    "table:FILE/64": ("",),
    "kmeans:16/64": ("",),
    "kmeans:8/64": ("",),
    "kmeans:4/64": ("",),
    "kmeans:2/64": ("",),
    "sum8/32": ("",),
    "sum8/256": ("", "+hadamard", "+sr"),
    "sum8:tensor": ("", "+hadamard", "+sr"),
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
    parser.add_argument("--write", type=Path, help="the docs folder to update")
    args = parser.parse_args()
    if args.write is not None and args.specs != ",".join(SPECS):
        parser.error("--write is for all specs")
    if args.batches < 2:
        parser.error("--batches must be 2 or more: the first is left out")
    from learned_formats import stand_in

    from tersum.codecs import codec_info

    for spec in args.specs.split(","):
        codec_info(stand_in(spec))  # before minutes of work
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
    from quality_page import row

    import tersum.jax
    from tersum.codecs import codec_sum_bits

    batches = load_batches(args.batch_size, args.batches, args.tokens)
    params = load_params()
    texts = list(zip(batches.ids, batches.masks, strict=True))
    whole = jax.jit(forward)
    exact = np.concatenate([np.asarray(whole(params, *text)) for text in texts[1:]])
    sums = [partial_sums(params, *text, args.ranks) for text in texts[:ERROR_BATCHES]]
    codecs = learned_codecs(args.specs.split(","), params, texts[0], sums[0])
    found = []
    for spec, codec in codecs.items():
        tersum.jax.install(codec=codec, local=True, min_bytes=0)
        encoder = Encoder(params)
        vectors = np.concatenate([encoder(*text) for text in texts][1:])
        tersum.jax.uninstall()
        cosines = (exact.astype(np.float64) * vectors).sum(1)
        found.append(
            Quality(
                spec,
                args.ranks,
                codec_sum_bits(codec, args.ranks),
                float(cosines.mean()),
                float(cosines.min()),
                float(np.mean(all_reduce_errors(codec, sums)[1:])),
            )
        )
        print(row(found[-1]), flush=True)
    return found


def learned_codecs(specs: list[str], params: Any, text: Any, sums: Any) -> dict[str, str]:
    """Each spec, and the one that it stands for; what is learned is learned from the all-reduces of
    one batch, ``text``, whose parts are ``sums``."""
    from embed import Encoder
    from learned_formats import is_learned, learn

    import tersum.jax
    from tersum.codecs import codec_info

    if not any(map(is_learned, specs)):
        return {spec: spec for spec in specs}
    with tempfile.TemporaryDirectory() as scratch:
        tersum.jax.install(codec="exact", local=True, min_bytes=0)
        encoder = Encoder(params)
        with tersum.jax.capture(scratch, calls=1, max_bytes=1 << 30):
            encoder(*text)
        tersum.jax.uninstall()
        # By the digest of what is in the files, which the process knows from here on.
        return {spec: codec_info(learn(spec, Path(scratch), sums)).spec for spec in specs}


def main() -> None:
    args = parse_arguments()
    from quality_page import HEAD, as_json, write
    from quality_plot import draw

    print(f"MiniLM-L6 over {args.ranks} ranks, {args.batches - 1} batches after the first")
    print(HEAD, flush=True)
    found = measure(args)
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / f"quality_{args.ranks}.json"
    path.write_text(as_json(found))
    draw(found, args.out / f"quality_{args.ranks}.svg")
    print(f"{path}, and its picture beside it")
    if args.write is not None:
        write(args.write, found)


if __name__ == "__main__":
    main()
