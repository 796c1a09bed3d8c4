"""The error that a command ends with; its text goes to the user without a traceback."""

from __future__ import annotations


class CommandError(Exception):
    """What went wrong and what to do. ``exit_status`` 2 is for usage, 1 for everything else."""

    def __init__(self, message: str, *, exit_status: int = 1) -> None:
        super().__init__(message)
        self.exit_status = exit_status
