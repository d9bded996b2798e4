"""Reads JSON from another server, with bounds on time and size. Blocks; knows no path.

A redirect is no answer: whoever is asked was named by the settings, or by the provider that they name.
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from iothub.base.errors import DeniedError, UnavailableError
from iothub.base.text import printable

PATIENCE_S = 5.0  # of one read
_WHOLE_S = 10.0
_MOST_BYTES = 1 << 20
_PIECE_BYTES = 64 << 10


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_given: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


def fetch_json(url: str, form: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None) -> Any:
    """GET an object, or POST a form and return the object of the answer.

    Raises:
        DeniedError: the server refuses the request (4xx); the text has its `error`.
        UnavailableError: it does not answer in time, or not with JSON.
    """
    content = None if form is None else urllib.parse.urlencode(form).encode()
    request = urllib.request.Request(url, content, {"Accept": "application/json", **(headers or {})})  # noqa: S310  of the settings
    name = urllib.parse.urlsplit(url).netloc
    try:
        with _OPENER.open(request, timeout=PATIENCE_S) as answer:
            found = json.loads(_read(answer))
    except urllib.error.HTTPError as error:
        with error:
            raise _refused(name, error) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise UnavailableError(f"{name} does not answer as it should: {reason}") from None
    if not isinstance(found, dict):
        raise UnavailableError(f"{name} does not answer with a JSON object")
    return found


def _read(answer: http.client.HTTPResponse) -> bytes:
    """Read the whole of it. Raises ValueError: it is too large, or comes too slowly."""
    body, deadline = bytearray(), time.monotonic() + _WHOLE_S
    while piece := answer.read1(_PIECE_BYTES):
        body += piece
        if len(body) > _MOST_BYTES:
            raise ValueError(f"its answer is larger than {_MOST_BYTES} bytes")
        if time.monotonic() > deadline:
            raise ValueError(f"its answer was not complete within {_WHOLE_S:.0f} s")
    return bytes(body)


def _refused(name: str, error: urllib.error.HTTPError) -> DeniedError | UnavailableError:
    if not 400 <= error.code < 500:
        return UnavailableError(f"{name} answers {error.code}")
    try:
        said = json.loads(error.read(_PIECE_BYTES))
        why = str(said["error"])[:100]
    except (OSError, ValueError, KeyError, TypeError):
        why = str(error.code)
    return DeniedError(f"{name} refuses: {printable(why)}")
