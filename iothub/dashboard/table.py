"""A table of a list of REST: a page at a time from the server, filtered there, and as a whole in CSV.

Knows no resource. Rows reach the browser as texts; one component, `static/rows.js`, draws them all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from nicegui import events, ui

from iothub.dashboard import parts
from iothub.dashboard.api import Json, Page, RefusalError
from iothub.dashboard.frame import View
from iothub.dashboard.parts import Empty
from iothub.dashboard.units import NOTHING

NOT_FOUND = 404
ROWS = 50
CSV_ROWS = 1000


def text(value: object) -> str:
    """Write any value of REST.

    >>> text(None), text(True), text(["a", "b"]), text(5)
    ('-', 'yes', 'a, b', '5')
    """
    if value is None or value in ("", [], {}):
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(text(each) for each in value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {text(each)}" for name, each in value.items())
    return str(value)


@dataclass(frozen=True, slots=True)
class Column:
    """One column. A column without a field is not in CSV.

    `kind`: text, long for sentences, number, code, badge, or meter for a share from 0 to 1.
    `show` writes the value; `of` finds it, if it is not the field alone;
    `href`: what a cell links to.
    """

    field: str
    label: str
    kind: str = "text"
    show: Callable[[Any], str] = text
    of: Callable[[Json], object] | None = None
    href: Callable[[Json], str] | None = None

    def cell(self, row: Json) -> dict[str, object]:
        value = self.of(row) if self.of else row.get(self.field)
        shown = self.show(value)
        made: dict[str, object] = {"t": shown, "c": f"io-td-{self.kind}"}
        if self.href is not None:
            made["h"] = self.href(row)
        if self.kind == "badge" and shown != NOTHING:
            made["b"] = parts.badge_kind(shown)
        elif self.kind == "meter" and isinstance(value, int | float):
            made["p"] = min(round(value * 100), 100)
            made["m"] = parts.meter_kind(value)
        return made


@dataclass(frozen=True, slots=True)
class Action:
    """What can be done with a row, for who has the scope; `when` says for which rows."""

    icon: str
    label: str
    run: Callable[[Json], Awaitable[object]]
    scope: str
    when: Callable[[Json], bool] = lambda _row: True


class Table:
    """A list, drawn where it is made; `load` gets its first page.

    `query` goes with each request; `search` is the name of the parameter that the field above the table sets, empty: no field.
    `is_filter`: whether `query` can leave rows out. `rows` 0: a list that REST gives as a whole.
    `fetch`: rows that the page makes itself; `path` is then the list that CSV has, empty: there is no CSV.
    """

    def __init__(  # noqa: PLR0913  # what a list consists of
        self,
        view: View,
        path: str,
        columns: Sequence[Column],
        *,
        empty: Empty,
        actions: Sequence[Action] = (),
        query: Mapping[str, object] | None = None,
        search: str = "",
        hint: str = "Filter by name",
        rows: int = ROWS,
        is_filter: bool = True,
        fetch: Callable[[], Awaitable[list[Json]]] | None = None,
    ) -> None:
        self._view = view
        self._path = path
        self._columns = columns
        self._empty = empty if not empty.scope or view.may(empty.scope) else Empty(empty.text)
        self._actions = [action for action in actions if view.may(action.scope)]
        self._query = dict(query or {})
        self._search = search
        self._limit = rows
        self._is_filter = is_filter
        self._fetch = fetch
        self._before: list[str] = []  # the pages that lie before this one
        self._page = Page([], "")
        self._shown: dict[str, Json] = {}
        self._here = ""
        self._draw(hint)

    @property
    def rows(self) -> list[Json]:
        """The rows of this page, as REST has them."""
        return self._page.items

    async def load(self) -> None:
        """Get the first page again, or for the first time."""
        self._before.clear()
        await self._get("")

    async def try_load(self) -> None:
        """Get the first page; what REST refuses, such as without a hub, stands in place of the table.

        Raises RefusalError: what the page is about is not there.
        """
        try:
            await self.load()
        except RefusalError as refusal:
            if refusal.status == NOT_FOUND:
                raise
            self._box.clear()
            with self._box:
                parts.problem(refusal)

    async def reload(self) -> None:
        """Get this page again, such as after an action."""
        await self._get(self._here)

    async def filter(self, **query: object) -> None:
        """Change what goes with each request, and begin again."""
        self._query |= query
        await self.load()

    # --- drawing

    def _draw(self, hint: str) -> None:
        self._box = ui.element("div").classes("io-table")
        with self._box:
            with ui.element("div").classes("io-table-head"):
                if self._search:
                    given = self._view.query.get(self._search, "")
                    self._query[self._search] = given or None
                    field = ui.input(placeholder=hint, value=given, on_change=self._searched)
                    field.props('dense outlined clearable debounce=300 data-search type=search aria-label="Filter"')
                self.above = ui.element("div").classes("io-table-more")
                ui.space()
                if self._path:
                    self._csv = ui.link("CSV", self._csv_target()).classes("io-csv")
                    self._csv.props('download title="All rows as CSV"')
            self._table = _Rows()
            self._table.props["columns"] = self._headers()
            self._table.on("act", self._act)
            self._nothing = ui.element("div")
            with self._nothing:
                parts.empty(self._empty)
            self._none_found = ui.label("Nothing matches the filter.").classes("io-empty")
            self._missing = ui.label().classes("io-missing").props("role=alert")
            with ui.element("div").classes("io-table-foot"):
                self._first = ui.button("First", on_click=self.load).props("flat dense no-caps")
                self._previous = ui.button("Previous", on_click=self._back).props(
                    "flat dense no-caps icon=chevron_left"
                )
                self._count = ui.label().classes("io-soft")
                self._next = ui.button("Next", on_click=self._forward).props(
                    "flat dense no-caps icon-right=chevron_right"
                )

    def _headers(self) -> list[dict[str, object]]:
        made: list[dict[str, object]] = [
            {
                "name": f"c{number}",
                "label": column.label,
                "field": "k",
                "align": "right" if column.kind == "number" else "left",
            }
            for number, column in enumerate(self._columns)
        ]
        if self._actions:
            made.append({"name": "acts", "label": "", "field": "k", "align": "right", "headerClasses": "io-acts"})
        return made

    def _show(self) -> None:
        self._shown = _by_key(self._page.items)
        rows = [self._row(key, row) for key, row in self._shown.items()]
        self._table.props["rows"] = rows
        is_filtered = self._is_filter and any(value is not None for value in self._query.values())
        self._table.set_visibility(bool(rows))
        self._nothing.set_visibility(not rows and not is_filtered)
        self._none_found.set_visibility(not rows and is_filtered)
        missing = self._page.more.get("unanswered") or []
        self._missing.set_text("Not complete: " + "; ".join(str(each) for each in missing))
        self._missing.set_visibility(bool(missing))
        first = len(self._before) * self._limit
        self._count.set_text(f"{first + 1} to {first + len(rows)}" if rows else "")
        self._first.set_visibility(bool(self._before))
        self._previous.set_visibility(bool(self._before))
        self._next.set_visibility(bool(self._page.following))
        if self._path:
            self._csv.set_visibility(bool(rows))
            self._csv.props["href"] = self._csv_target()

    def _row(self, key: str, row: Json) -> dict[str, object]:
        """Return what the template draws. Tuples: NiceGUI would watch each list and dict in it for changes, which costs more than the page."""
        acts = tuple(
            {"n": index, "icon": action.icon, "label": action.label}
            for index, action in enumerate(self._actions)
            if action.when(row)
        )
        return {
            "k": key,
            "cells": tuple(column.cell(row) for column in self._columns),
            "acts": acts,
            "has": bool(self._actions),
        }

    def _csv_target(self) -> str:
        asked = {name: value for name, value in self._query.items() if value is not None}
        if self._limit:
            asked["limit"] = CSV_ROWS
        listed = f"{self._path}?{urlencode(asked)}" if asked else self._path
        fields = ",".join(column.field for column in self._columns if column.field)
        return "/export.csv?" + urlencode({"list": listed, "fields": fields})

    # --- what happens

    async def _get(self, following: str) -> None:
        try:
            self._page = await self._ask(following)
        except RefusalError as refusal:
            if not self._here and not self._table.client.has_socket_connection:
                raise  # the page as a whole
            self._view.tell(refusal)
            return
        self._here = following
        self._show()

    async def _ask(self, following: str) -> Page:
        if self._fetch is not None:
            return Page(await self._fetch(), "")
        if following:
            return await self._view.api.page(following)
        return await self._view.api.page(self._path, limit=self._limit or None, **self._query)

    async def _forward(self) -> None:
        self._before.append(self._here)
        await self._get(self._page.following)

    async def _back(self) -> None:
        await self._get(self._before.pop() if self._before else "")

    async def _searched(self, event: events.ValueChangeEventArguments[Any]) -> None:
        given = str(event.value or "").strip()
        here = self._view.entry.path
        for name, value in self._view.path.items():
            here = here.replace(f"{{{name}}}", str(value))
        others = {name: value for name, value in self._view.query.items() if name != self._search}
        asked = {**others, self._search: given} if given else others
        ui.navigate.history.replace(here + (f"?{urlencode(asked)}" if asked else ""))
        await self.filter(**{self._search: given or None})

    async def _act(self, event: events.GenericEventArguments) -> None:
        """Run an action of a row; one that has changed since it was shown is shown again, and nothing is done."""
        key, index = str(event.args[0]), int(event.args[1])
        row = self._shown.get(key)
        if row is None:
            parts.notify("This row has changed meanwhile: look at it again.", "warning")
        elif 0 <= index < len(self._actions):
            await self._actions[index].run(row)


class _Rows(ui.element, component="static/rows.js"):
    """The rows, as the browser draws them."""


def _by_key(rows: Sequence[Json]) -> dict[str, Json]:
    """Return rows by a key that stands for their content, so that a click on one never reaches another that has taken its place.

    >>> [*_by_key([{"name": "a"}, {"name": "b"}])] == [*_by_key([{"name": "a"}, {"name": "b"}])]
    True
    >>> len(_by_key([{"name": "a"}, {"name": "a"}]))
    2
    """
    keyed: dict[str, Json] = {}
    for row in rows:
        digest = hashlib.blake2b(repr(row).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        keyed[digest if digest not in keyed else f"{digest}-{len(keyed)}"] = row
    return keyed
