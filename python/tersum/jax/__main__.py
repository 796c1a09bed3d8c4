"""``python -m tersum.jax [options] program.py [arguments…]``: runs a JAX program through tersum."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from typing import Any


def main(arguments: list[str] | None = None) -> None:
    """Installs tersum at the right moment and runs the program as ``__main__``."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if not os.path.exists(options.program):
        parser.error(f"no such program: {options.program}")
    try:
        import tersum.jax as tersum_jax
    except ImportError as error:
        parser.exit(1, f"{parser.prog}: {error}\n")
    from tersum.errors import TersumError

    wish = {
        "codec": options.codec,
        "max_rel_error": options.max_rel_error,
        "min_bytes": options.min_bytes,
        "timeout_ms": options.timeout_ms,
        "local": options.local,
        "plan": options.plan,
    }
    wish = {name: value for name, value in wish.items() if value is not None}
    try:
        install_at_the_right_moment(tersum_jax, wish)
    except TersumError as error:
        parser.error(str(error))
    sys.argv = [options.program, *options.arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(options.program))
    try:
        runpy.run_path(options.program, run_name="__main__")
    finally:
        if options.report:
            print(tersum_jax.report(), file=sys.stderr)
            print(tersum_jax.stats(), file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tersum.jax",
        description="Runs a JAX program; its all-reduces and reduce-scatters go through tersum.",
    )
    parser.add_argument("--codec", help="int8/128 (default), int8/32, int4/128, bf16, exact, …")
    parser.add_argument("--max-rel-error", type=float, help="what --codec auto may cost")
    parser.add_argument("--min-bytes", type=int, help="leave smaller operations to XLA")
    parser.add_argument("--timeout-ms", type=int, help="deadline of one collective")
    parser.add_argument("--plan", help="auto (default), two_step, ring, … (docs/plans.md)")
    parser.add_argument(
        "--local", action="store_true", default=None, help="also groups inside one process"
    )
    parser.add_argument(
        "--report", action="store_true", help="print report() and stats() at the end, to stderr"
    )
    parser.add_argument("program", help="a Python file")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the program's own arguments")
    return parser


def registering_starts_backends() -> bool:
    """True where registering the compiler hook makes JAX start its backends (jax >= 0.11)."""
    import jax

    from tersum.jax._jax_version import parse_version

    return parse_version(jax.__version__) >= (0, 11)


def install_at_the_right_moment(tersum_jax: Any, wish: dict[str, Any]) -> None:
    """Installs now, or after ``jax.distributed.initialize`` where backends may not start before.

    A program that never calls that has one process, and nothing to gain but with ``local``.
    """
    import jax

    if wish.get("local") or not registering_starts_backends():
        tersum_jax.install(**wish)
        return
    initialize = jax.distributed.initialize

    def initialize_and_install(*args: Any, **kwargs: Any) -> None:
        initialize(*args, **kwargs)
        tersum_jax.install(**wish)

    jax.distributed.initialize = initialize_and_install


if __name__ == "__main__":
    main()
