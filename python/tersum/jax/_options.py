"""The options of :func:`tersum.jax.install`: plain values, compared between processes."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math

import tersum
from tersum.codecs import is_auto
from tersum.jax._jax_version import require_xla_core

PLANS = (
    "auto",
    "two_step",
    "ring",
    "one_shot",
    "bidirectional_ring",
    "halving_doubling",
    "torus",
    "tree",
    "hierarchical",
)
TRANSPORTS = ("auto", "tcp", "shm")


def names_auto(codec: str) -> bool:
    """Whether ``codec`` is chosen within an error that stands elsewhere: ``"auto"``, or
    ``"auto:SPEC|SPEC|…"``, and not ``"auto:0.01"``."""
    if not is_auto(codec):
        return False
    head = codec.removeprefix("auto").removeprefix(":").partition(":")[0]
    try:
        float(head)
    except ValueError:
        return True
    return False


def auto_codec(max_rel_error: float, codec: str = "auto") -> str:
    """``codec``, of :func:`names_auto`, within an error; InvalidArgumentError if that is none."""
    if not 0 < max_rel_error < math.inf:
        raise tersum.InvalidArgumentError(
            f"codec='auto' needs the relative error that it may cause, and max_rel_error is "
            f"{max_rel_error}; pass max_rel_error=1e-2, say"
        )
    named = codec.removeprefix("auto")
    name: str = require_xla_core().canonical_codec(f"auto:{float(max_rel_error)!r}{named}")
    return name


@dataclasses.dataclass(frozen=True)
class InstallOptions:
    """See :func:`tersum.jax.install` for the meaning of each."""

    codec: str
    min_bytes: int
    timeout_ms: int
    local: bool
    plan: str
    transport: str
    listen_address: str
    listen_port: int
    tcp_streams: int
    flatten_every: int = 1
    flatten_state: bytes = dataclasses.field(default=b"", repr=False)
    feedback_state: bytes = dataclasses.field(default=b"", repr=False)
    rounding_seed: int = 0
    max_rel_error: float = 0.0
    # False when only tersum.jax.psum asked for the hook: then only its operations are rewritten.
    all_collectives: bool = True

    def validate(self) -> InstallOptions:
        """The same with the codec's canonical name; InvalidArgumentError names the fault."""
        if self.plan not in PLANS:
            raise tersum.InvalidArgumentError(
                f"no plan is called {self.plan!r}; use one of {', '.join(PLANS)}"
            )
        if self.transport not in TRANSPORTS:
            raise tersum.InvalidArgumentError(
                f"no transport is called {self.transport!r}; use one of {', '.join(TRANSPORTS)}"
            )
        if self.min_bytes < 0:
            raise tersum.InvalidArgumentError(f"min_bytes is {self.min_bytes}; use 0 or more")
        if self.timeout_ms <= 0:
            raise tersum.InvalidArgumentError(
                f"timeout_ms is {self.timeout_ms}; use a positive number of milliseconds"
            )
        if self.flatten_every < 1:
            raise tersum.InvalidArgumentError(
                f"flatten_every is {self.flatten_every}; use 1 or more"
            )
        if not 0 <= self.rounding_seed < 1 << 64:
            raise tersum.InvalidArgumentError(
                f"rounding_seed is {self.rounding_seed}; use 0 to 2**64 - 1"
            )
        if not 0 <= self.max_rel_error < math.inf:
            raise tersum.InvalidArgumentError(
                f"max_rel_error is {self.max_rel_error}; use a number above 0, or 0 for none"
            )
        if names_auto(self.codec):
            return dataclasses.replace(self, codec=auto_codec(self.max_rel_error, self.codec))
        if self.codec == "off":
            return self
        return dataclasses.replace(self, codec=require_xla_core().canonical_codec(self.codec))

    @property
    def auto_codec(self) -> str:
        """What operations that ask for ``"auto"`` get; ``""`` where no error was named."""
        return auto_codec(self.max_rel_error) if self.max_rel_error > 0 else ""

    def agreed(self) -> str:
        """What must be equal in all processes, as text."""
        # Where a process listens is its own affair, and so is what its devices owe.
        own = ("listen_address", "listen_port", "feedback_state")
        values = {k: v for k, v in dataclasses.asdict(self).items() if k not in own}
        values["flatten_state"] = hashlib.sha256(self.flatten_state).hexdigest()
        return json.dumps(values, sort_keys=True)

    def differences(self, other: InstallOptions) -> str:
        """``codec='int8/128' against 'int4/128', …`` for the fields that differ."""
        return ", ".join(
            f"{field.name}={getattr(self, field.name)!r} against {getattr(other, field.name)!r}"
            if field.repr
            else field.name
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != getattr(other, field.name)
        )
