"""Reads captures: the folders that ``_capture_files.py`` describes.

Pure functions over files that somebody else wrote: whatever is wrong with them is an
InvalidArgumentError that names the file. Arrays are read when they are asked for.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tersum._capture_files import FLOATING, FORMAT, INDEX_NAME, CallEntry
from tersum.errors import InvalidArgumentError

# What is read of an entry, beside its group.
_TEXTS = ("site", "id", "call", "collective", "dtype", "source", "input")
_NUMBERS = ("count", "channels", "rank")


@dataclass
class CapturedCall:
    """One call: what each rank handed in, by rank. Not all ranks need be there."""

    files: dict[int, Path] = field(default_factory=dict)


@dataclass
class CapturedSite:
    """One operand of one operation, and its calls in the order in which they were made."""

    name: str
    collective: str
    dtype: str
    count: int  # of values that a rank hands in
    channels: int  # size of the minor dimension; 0: not known
    ranks: int  # of the group
    source: str = ""  # where the program has it, as far as it is known
    calls: list[CapturedCall] = field(default_factory=list)

    def inputs(self, ranks: int) -> Iterator[npt.NDArray[np.float32]]:
        """Each call's values, ``[ranks, count]``, of the first ``ranks`` ranks.

        Where that is more than the group has, the ranks of the calls after it stand in, so a
        call takes several captured ones.
        """
        whole = [call for call in self.calls if len(call.files) == self.ranks]
        per_call = -(-ranks // self.ranks)
        for first in range(0, len(whole) - per_call + 1, per_call):
            files = [
                call.files[rank]
                for call in whole[first : first + per_call]
                for rank in range(self.ranks)
            ]
            yield np.stack([self._read(file) for file in files[:ranks]])

    def _read(self, file: Path) -> npt.NDArray[np.float32]:
        try:
            stored = np.load(file, allow_pickle=False).reshape(-1)
        except (OSError, ValueError, EOFError) as error:
            raise InvalidArgumentError(
                f"cannot read {file}: {error}; capture again, or remove its folder"
            ) from error
        wanted = np.dtype(np.uint16 if self.dtype == "bfloat16" else self.dtype)
        if stored.dtype != wanted or stored.size != self.count:
            raise InvalidArgumentError(
                f"{file} has {stored.size} values of {stored.dtype} where the index says "
                f"{self.count} of {wanted}; capture again, or remove its folder"
            )
        values: npt.NDArray[np.float32]
        if self.dtype == "bfloat16":
            values = (stored.astype(np.uint32) << 16).view(np.float32)
        else:
            values = stored.astype(np.float32)
        return values


def read_capture(directory: Path) -> list[CapturedSite]:
    """The sites of all processes' folders in ``directory``, as they appear in the indexes.

    InvalidArgumentError when there is no capture, or no call in it that all ranks recorded.
    """
    if not directory.is_dir():
        raise InvalidArgumentError(
            f"there is no directory {directory}: name the one that tersum.capture() or "
            "tersum.jax.capture() wrote"
        )
    indexes = sorted({*directory.glob(INDEX_NAME), *directory.glob(f"*/{INDEX_NAME}")})
    if not indexes:
        raise InvalidArgumentError(
            f"{directory} holds no capture ({INDEX_NAME} in a folder per process): it is written "
            "when a capture stops"
        )
    sites: dict[tuple[str, str], CapturedSite] = {}
    calls: dict[tuple[str, str, str], CapturedCall] = {}
    for index in indexes:
        for entry in _entries(index):
            _add(sites, calls, entry, index.parent)
    if not sites:
        raise InvalidArgumentError(
            f"the capture in {directory} is empty: no sum travelled through tersum meanwhile "
            "(tersum.jax.report() says what became of each; min_bytes=0 takes small ones, too)"
        )
    if not any(len(call.files) == site.ranks for site in sites.values() for call in site.calls):
        site = next(iter(sites.values()))
        raise InvalidArgumentError(
            f"no call in {directory} has all its ranks (of {site.ranks}): copy the folders of all "
            "processes into one directory, and start and stop all captures at the same calls"
        )
    seen: Counter[str] = Counter()
    for site in sites.values():
        # Two programs of one name, or two groups: names are for people, but tell sites apart.
        seen[site.name] += 1
        if seen[site.name] > 1:
            site.name += f" [{seen[site.name]}]"
    return list(sites.values())


def _entries(index: Path) -> list[CallEntry]:
    try:
        content: Any = json.loads(index.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidArgumentError(f"cannot read {index}: {error}; capture again") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InvalidArgumentError(f"{index} is no index of the format {FORMAT!r}; capture again")
    entries = content.get("calls")
    if not isinstance(entries, list) or not all(_is_entry(entry) for entry in entries):
        raise InvalidArgumentError(f"{index} has entries without all fields; capture again")
    return [entry for entry in entries if entry["dtype"] in FLOATING and entry["count"] > 0]


def _is_entry(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and all(isinstance(entry.get(name), str) for name in _TEXTS)
        and all(isinstance(entry.get(name), int) for name in _NUMBERS)
        and isinstance(entry.get("group"), list)
        and 0 <= entry["rank"] < len(entry["group"])
    )


def _add(
    sites: dict[tuple[str, str], CapturedSite],
    calls: dict[tuple[str, str, str], CapturedCall],
    entry: CallEntry,
    folder: Path,
) -> None:
    group = ",".join(map(str, entry["group"]))
    # One operation may run in several groups, each with values of its own.
    key = (entry["id"], group)
    made = CapturedSite(
        entry["site"],
        entry["collective"],
        entry["dtype"],
        entry["count"],
        entry["channels"],
        len(entry["group"]),
        entry["source"],
    )
    site = sites.setdefault(key, made)
    if (site.dtype, site.count, site.ranks) != (made.dtype, made.count, made.ranks):
        raise InvalidArgumentError(
            f"{folder} and another process recorded different things as {entry['site']}: start "
            "and stop the capture at the same calls on all ranks"
        )
    call = calls.get((*key, entry["call"]))
    if call is None:
        call = calls[(*key, entry["call"])] = CapturedCall()
        site.calls.append(call)
    # A name in an index is no path.
    call.files.setdefault(entry["rank"], folder / Path(entry["input"]).name)
