"""What can go wrong with the real servers, in one class. Knows no server."""

from __future__ import annotations


class ServicesError(Exception):
    """What happened, what was expected, what to do; the last lines of a log may follow."""
