"""Links of pages to files and headings of the tree lead somewhere."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from tidy_tree import Finding, SourceFile, Tree

_LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)\s]*))?\)")
_HEADING = re.compile(r"#{1,6} +(.*)")


def check_links(tree: Tree) -> Iterator[Finding]:
    pages = {file.path: _anchors(file) for file in tree.files if file.path.endswith(".md")}
    for file in tree.files:
        if file.path in pages:
            yield from _broken_links(tree, pages, file)


def _broken_links(tree: Tree, pages: dict[str, set[str]], file: SourceFile) -> Iterator[Finding]:
    for number, line in enumerate(file.lines, 1):
        for target, anchor in _LINK.findall(line):
            if ":" in target:
                continue  # of the network
            folder = posixpath.dirname(file.path)
            path = posixpath.normpath(posixpath.join(folder, target)) if target else file.path
            if not (tree.root / path).exists():
                yield Finding(file.path, number, "links", f"{target} is not there")
            elif anchor and path in pages and anchor not in pages[path]:
                yield Finding(file.path, number, "links", f"{path} has no heading #{anchor}")


def _anchors(file: SourceFile) -> set[str]:
    """What a page's headings are called in links: lower case, of letters, digits and dashes."""
    headings = [match[1] for line in file.lines if (match := _HEADING.match(line))]
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}
