"""``tersum info``: what this build and this machine can do, and what it sees of JAX and torch."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import platform
from pathlib import Path
from typing import Any

import tersum
from tersum import _core
from tersum.cli import shaped_link

#: What the native path in JAX hooks into; earlier versions lack it.
_JAX_HOOK = "register_hlo_module_transformation"


def add_parser(commands: Any) -> None:
    """Adds ``info`` to the command line."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "info",
        help="version, instruction sets, transports, and what JAX and torch it sees",
        description="Shows what this build and this machine can do.",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints the facts, one per line."""
    facts = collect()
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        print(f"{name:<{width}}  {value}")
    return 0


def collect() -> dict[str, str]:
    """The facts by name, in the order of printing."""
    shaped = shaped_link.unavailable_reason()
    return {
        "tersum": tersum.__version__,
        "wire version": str(tersum.wire_version),
        "python": f"{platform.python_version()} ({platform.machine()})",
        "isa": tersum.isa(),
        "available isas": " ".join(tersum.available_isas()),
        "transports": "tcp shm",
        "boot id": _read("/proc/sys/kernel/random/boot_id"),
        "network namespace": _namespace("net"),
        "cpus": str(len(os.sched_getaffinity(0))),
        "shaped links": "available" if shaped is None else f"unavailable: {shaped}",
        "jax": _jax(),
        "torch": _torch(),
    }


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError as error:
        return f"unreadable ({error.strerror}): processes of this machine talk over tcp"


def _namespace(kind: str) -> str:
    try:
        return os.readlink(f"/proc/self/ns/{kind}")
    except OSError as error:
        return f"unreadable ({error.strerror}): processes of this machine talk over tcp"


def _version(package: str) -> str | None:
    if importlib.util.find_spec(package) is None:
        return None
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"


def _jax() -> str:
    version = _version("jax")
    if version is None:
        return "not installed"
    if not _core.has_xla:
        return f"{version}; this build of tersum has no JAX part (built without jaxlib's headers)"
    try:
        from jax.extend import xla
    except ImportError:
        return f"{version}; too old for tersum.jax.install(): no jax.extend.xla, upgrade jax"
    if not hasattr(xla, _JAX_HOOK):
        return f"{version}; too old for tersum.jax.install(): no {_JAX_HOOK}, upgrade jax"
    return f"{version}; tersum.jax.install() works here"


def _torch() -> str:
    version = _version("torch")
    if version is None:
        return "not installed"
    try:
        import torch.distributed as dist

        gloo = dist.is_available() and dist.is_gloo_available()
    except (ImportError, OSError) as error:
        return f"{version}; cannot be imported: {error}"
    return f"{version}; tersum perf --compare gloo {'works here' if gloo else 'cannot: no gloo'}"
