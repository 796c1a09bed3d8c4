"""What became of every collective that tersum saw, and what its own cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload


@dataclasses.dataclass(frozen=True)
class CollectiveRow:
    """One collective instruction of one compiled program."""

    program: str  # the module's name, e.g. "jit_step"
    operation: str  # the instruction's name in it
    opcode: str  # "all-reduce", "reduce-scatter"
    source: str  # where the program has it, e.g. "jit(step)/psum"; may be empty
    element_type: str  # XLA's name, e.g. "f32"
    elements: int  # of all operands, on one device
    bytes: int
    groups: str  # e.g. "2 groups of 4"
    outcome: str  # "rewritten", "left alone", "error"
    codec: str  # what the values travel in; "" unless rewritten
    promoted: bool  # XLA made float32 of bfloat16 before tersum saw it
    wire_bf16: bool  # ... and it travels as bfloat16 without loss
    reason: str
    fingerprint: int = 0  # of the program; with `number` it names the operation in a capture
    number: int = 0  # among the program's collectives
    channels: tuple[int, ...] = ()  # of each operand: size of its minor dimension; 0: unknown
    # Of the codec auto:E: what the last calls took, each codec once (operands and the first
    # iterations of a loop choose for themselves), and the largest error that samples showed.
    chosen: tuple[str, ...] = ()
    rel_error: float = 0.0

    @property
    def travels_as(self) -> str:
        """``"int8/128"``, ``"exact (as bf16)"``, ``"auto:0.01 (int6/128+hadamard)"`` or ``"XLA's
        own"``."""
        if self.outcome != "rewritten":
            return "XLA's own"
        if self.chosen:
            return f"{self.codec} ({', '.join(self.chosen)})"
        return f"{self.codec} (as bf16)" if self.wire_bf16 else self.codec


class Report(Sequence[CollectiveRow]):
    """The rows, oldest first; ``str()`` of it is a table."""

    def __init__(self, rows: Iterable[CollectiveRow]) -> None:
        self._rows = list(rows)

    @overload
    def __getitem__(self, index: int) -> CollectiveRow: ...
    @overload
    def __getitem__(self, index: slice) -> Report: ...
    def __getitem__(self, index: int | slice) -> CollectiveRow | Report:
        return Report(self._rows[index]) if isinstance(index, slice) else self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[CollectiveRow]:
        return iter(self._rows)

    @property
    def rewritten(self) -> Report:
        """The rows that travel through tersum."""
        return Report(row for row in self._rows if row.outcome == "rewritten")

    def __str__(self) -> str:
        if not self._rows:
            return "tersum has seen no collective yet (programs are looked at when they compile)."
        head = ("program", "operation", "what", "values", "groups", "travels as", "why")
        lines = [head, *(_cells(row) for row in self._rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(head) - 1)]
        return "\n".join(
            "  ".join([*(c.ljust(w) for c, w in zip(line, widths, strict=False)), line[-1]])
            for line in lines
        )

    __repr__ = __str__


def rows_with_choices(
    rows: Iterable[dict[str, Any]], choices: Iterable[dict[str, Any]]
) -> list[CollectiveRow]:
    """Of what the compiled part reports: an operation is named by its program and its number."""
    taken: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for choice in choices:
        taken.setdefault((choice["fingerprint"], choice["number"]), []).append(choice)
    out = []
    for row in rows:
        own = taken.get((row["fingerprint"], row["number"]), [])
        if row["outcome"] != "rewritten" or not row["codec"].startswith("auto:"):
            own = []
        chosen = tuple(sorted({choice["codec"] for choice in own}))
        error = max((choice["rel_error"] for choice in own), default=0.0)
        out.append(CollectiveRow(**row, chosen=chosen, rel_error=error))
    return out


def _cells(row: CollectiveRow) -> tuple[str, ...]:
    values = f"{row.elements} {row.element_type}"
    return (
        row.program,
        row.operation,
        row.opcode,
        values,
        row.groups,
        row.travels_as,
        row.reason,
    )


@dataclasses.dataclass(frozen=True)
class Stats:
    """Sums over this process's calls, one per device and operand."""

    calls: int
    values: int  # elements handed in
    wire_bytes_sent: int  # payload that left this process
    wire_bytes_received: int
    seconds: float  # from start to end of each call, added up

    def __str__(self) -> str:
        return (
            f"{self.calls} calls, {self.values} values, {self.wire_bytes_sent} bytes sent, "
            f"{self.wire_bytes_received} received, {self.seconds:.3f} s"
        )
