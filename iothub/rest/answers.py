"""Answers: an object with its ETag, a page of a list with the link to the next one; and what a client may ask of both.

Knows no resource.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Depends, Query, Request, Response

from iothub.rest.problems import Code, ProblemError

Row = Mapping[str, object]
MOST = 1000
USUAL = 100
_PLACE_CHARS = 16_384  # the longest client id and Topic Filter, with room for escapes


class Asked:
    """A page that was asked for: behind `after`, at most `limit` rows."""

    def __init__(
        self,
        request: Request,
        limit: Annotated[int, Query(ge=1, le=MOST, description="Maximum number of rows.")] = USUAL,
        after: Annotated[
            str,
            Query(max_length=_PLACE_CHARS, description="Start after this one: take it from the link to the next page."),
        ] = "",
    ) -> None:
        self._request = request
        self.limit = limit
        self.after = after

    def of(self, rows: Sequence[Row], following: object, **more: object) -> Response:
        """Answer with these rows. `following`: what `after` is for the next page; None: it is the last one. `more`: other fields."""
        headers = {}
        if following is not None:
            others = [(name, value) for name, value in self._request.query_params.multi_items() if name != "after"]
            target = f"{self._request.url.path}?{urlencode([*others, ('after', str(following))])}"
            headers["Link"] = f'<{target}>; rel="next"'
        return _written({"items": rows, **more}, 200, headers)

    def cut(self, rows: Sequence[Row], key: Callable[[Row], object] = lambda row: row["name"]) -> Response:
        """Answer with the first `limit` of rows that were read with one more than that."""
        page = rows[: self.limit]
        return self.of(page, key(page[-1]) if len(rows) > self.limit else None)

    def behind(self, rows: Sequence[Row], key: Callable[[Row], str] = lambda row: str(row["name"])) -> Response:
        """Answer with a page of a whole list that is in the order of `key`."""
        return self.cut([row for row in rows if key(row) > self.after][: self.limit + 1], key)


class AskedByNumber(Asked):
    """A page of a list that is in the order of numbers."""

    def __init__(
        self,
        request: Request,
        limit: Annotated[int, Query(ge=1, le=MOST, description="Maximum number of rows.")] = USUAL,
        after: Annotated[
            int | None, Query(ge=1, le=2**63 - 1, description="Start after this number: see the link to the next page.")
        ] = None,
    ) -> None:
        super().__init__(request, limit)
        self.number = after


Page = Annotated[Asked, Depends()]
NumberedPage = Annotated[AskedByNumber, Depends()]


def created(row: Row, location: str) -> Response:
    return _written(row, 201, {"Location": location, "Cache-Control": "no-store", "ETag": etag(row)})


def shown(row: Row, *, status: int = 200) -> Response:
    return _written(row, status, {"ETag": etag(row)})


def secret(row: Row, *, status: int = 200) -> Response:
    """Answer with what nobody may keep on the way."""
    return _written(row, status, {"Cache-Control": "no-store"})


def gone() -> Response:
    return Response(status_code=204)


def etag(row: Row) -> str:
    """Return a strong ETag: the same for the same content."""
    text = json.dumps(row, sort_keys=True, separators=(",", ":"), default=str)
    return f'"{hashlib.sha256(text.encode()).hexdigest()[:24]}"'


def require_match(expected: str | None, row: Row) -> None:
    """Raise ProblemError unless `If-Match` is absent or names what the row is now."""
    if expected is None or expected.strip() == "*":
        return
    if etag(row) not in {part.strip() for part in expected.split(",")}:
        raise ProblemError(Code.PRECONDITION_FAILED, "it has changed since it was read: read it again, then change it")


def _written(content: object, status: int, headers: Mapping[str, str]) -> Response:
    text = json.dumps(content, separators=(",", ":"), default=str)
    return Response(text, status, {"Cache-Control": "private, no-cache", **headers}, "application/json")
