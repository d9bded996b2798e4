"""A whole list as CSV: the pages of REST, one after the other, with the session of who asks.

Knows no resource. A cell that a spreadsheet would take for a formula gets an apostrophe before it.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import AsyncIterator
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from iothub.dashboard.api import Api, Json, Page, RefusalError, api_for
from iothub.dashboard.frame import State

_LIST = re.compile(r"/[^/?#\s][^#\s]*")
_FIELDS = 40
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


async def export(request: Request) -> Response:
    """Answer GET /export.csv?list=PATH&fields=a,b: PATH is one of REST, below /api/v1."""
    state: State = request.scope["iothub.dashboard"]
    path = request.query_params.get("list", "")
    fields = [name for name in request.query_params.get("fields", "").split(",") if name][:_FIELDS]
    if not _LIST.fullmatch(path) or not fields:
        return PlainTextResponse("expected the parameters list and fields", 422)
    api = api_for(state.rest, request)
    asked = urlsplit(path)
    try:
        first = await api.page(asked.path, **dict(parse_qsl(asked.query)))
    except RefusalError as refusal:
        return PlainTextResponse(refusal.detail, refusal.status)
    name = re.sub(r"[^a-z0-9]+", "-", asked.path.lower()).strip("-") or "list"
    sent = {"Content-Disposition": f'attachment; filename="{name}.csv"', "Cache-Control": "no-store"}
    return StreamingResponse(_lines(api, first, fields), 200, sent, "text/csv; charset=utf-8")


async def _lines(api: Api, page: Page, fields: list[str]) -> AsyncIterator[str]:
    yield _written([fields])
    while True:
        yield _written([[cell(row, name) for name in fields] for row in page.items])
        if not page.following:
            return
        page = await api.page(page.following)


def _written(rows: list[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def cell(row: Json, name: str) -> str:
    """Write one value.

    >>> cell({"a": "=1+1"}, "a"), cell({"a": ["x", "y"]}, "a"), cell({}, "a"), cell({"a": -5}, "a")
    ("'=1+1", 'x y', '', '-5')
    """
    value = row.get(name)
    if value is None:
        return ""
    if isinstance(value, bool | int | float):
        return str(value)
    return safe(" ".join(str(each) for each in value) if isinstance(value, list) else str(value))


def safe(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula.

    >>> safe("=1+1"), safe("a=1")
    ("'=1+1", 'a=1')
    """
    return f"'{text}" if text.startswith(_FORMULA) else text
