"""The loss curves of a training check as a file, from which its verdict can be had again.

Per wire and seed the mean loss of every step, in nats a character, to five places: a hundredth of
what the narrowest band of the check is wide.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from spread import Verdict, judge

PLACES = 5


@dataclass(frozen=True)
class CurveFile:
    """Losses are [seeds, steps]; `settings` says what was run, `claims` what was found there."""

    settings: Mapping[str, Any]
    plain: np.ndarray
    tried: np.ndarray
    claims: Mapping[str, bool]

    @property
    def verdict(self) -> Verdict:
        """Judged anew, over all windows of the curve."""
        return judge(self.plain, self.tried, self.settings["window"])


def as_json(curves: CurveFile) -> str:
    """A line per seed."""

    def rows(losses: np.ndarray) -> Sequence[str]:
        return [json.dumps([round(float(loss), PLACES) for loss in run]) for run in losses]

    parts = [
        *(f' "{key}": {json.dumps(value)}' for key, value in curves.settings.items()),
        f' "claims": {json.dumps(curves.claims)}',
        *(
            f' "{name}": [\n  ' + ",\n  ".join(rows(losses)) + "\n ]"
            for name, losses in (("plain_losses", curves.plain), ("tried_losses", curves.tried))
        ),
    ]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def from_json(text: str) -> CurveFile:
    """What `as_json` wrote."""
    found = json.loads(text)
    plain, tried = (np.array(found.pop(f"{name}_losses")) for name in ("plain", "tried"))
    claims = found.pop("claims")
    return CurveFile(found, plain, tried, claims)
