"""The sites of a capture that a command learns from."""

from __future__ import annotations

from pathlib import Path

from tersum._captured_calls import CapturedSite, read_capture
from tersum.cli.command_error import CommandError


def read_sites(directory: Path, name: str | None) -> list[CapturedSite]:
    """All, or those of one name. CommandError names the capture's sites if it has none of it."""
    sites = read_capture(directory)
    if name is None:
        return sites
    chosen = [site for site in sites if site.name == name]
    if not chosen:
        names = ", ".join(site.name for site in sites)
        raise CommandError(f"the capture has no site {name!r}; its sites: {names}")
    return chosen
