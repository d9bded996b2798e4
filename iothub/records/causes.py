"""Why a stored record cannot be read, in words: for whoever has to look for it, not for whoever wrote the reader.

Knows no format.
"""

from __future__ import annotations

import json

UNREADABLE = (ValueError, KeyError, TypeError, RecursionError)
"""What taking a damaged JSON record apart raises."""


def in_words(error: Exception) -> str:
    """Say what is wrong with a record, from what reading it has raised."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    if isinstance(error, UnicodeEncodeError):
        return "a text in it has half a character, which UTF-8 cannot have"
    if isinstance(error, json.JSONDecodeError):
        return "it is not JSON"
    if isinstance(error, KeyError):
        return f"it has no {error.args[0]!r}"
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    if isinstance(error, TypeError):
        return "something in it is of the wrong type"
    return "a field has a value that this program cannot read"
