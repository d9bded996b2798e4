"""Text that others chose, made harmless for logs, terminals, tables and URLs.

Knows no log and no table.
"""

from __future__ import annotations

from urllib.parse import quote

_LIMIT = 512  # a topic may have 64 KiB; a log line should not


def clean(text: str) -> str:
    """Return `text` on one line, printable and at most 512 characters long."""
    if len(text) > _LIMIT:
        text = f"{text[:_LIMIT]}... ({len(text)} characters)"
    return printable(text)


def printable(text: str) -> str:
    """Return `text` with everything escaped that could end a line or drive a terminal."""
    if text.isprintable():
        return text
    return "".join(mark if mark.isprintable() else mark.encode("unicode_escape").decode("ascii") for mark in text)


def path_part(text: str) -> str:
    """Return one part of a URL's path, whatever characters it has. A Client Identifier `..` must not become the way up.

    >>> path_part("a/b c"), path_part("..")
    ('a%2Fb%20c', '%2E%2E')
    """
    return quote(text, safe="").replace(".", "%2E")
