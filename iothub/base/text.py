"""Text that others chose, made harmless for logs, terminals and tables.

Knows no log and no table.
"""

from __future__ import annotations

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
