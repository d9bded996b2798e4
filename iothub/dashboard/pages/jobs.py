"""/jobs, one of them, and one of its runs: what ran, with log and report, and what runs now."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from iothub.dashboard import dialogs, parts
from iothub.dashboard.api import Json, RefusalError, part
from iothub.dashboard.frame import PLATFORM, View, page
from iothub.dashboard.parts import Empty, command
from iothub.dashboard.table import Action, Column, Table, text
from iothub.dashboard.units import moment

_LOG_LINES = 200
_POLL_S = 2.0  # while it runs
_RUNS = (
    Column("id", "Run", "number", href=lambda run: f"/runs/{run['id']}"),
    Column("result", "Result", "badge"),
    Column("options", "Options", of=lambda run: text(run["options"])),
    Column("started", "Started (UTC)", show=moment),
    Column("ended", "Ended (UTC)", show=moment),
    Column("figures", "Figures"),
    Column("text", "Says", "long"),
)


def _last(row: Json, name: str) -> Any:
    return (row.get("last") or {}).get(name)


@page("/jobs", title="Jobs", scope="jobs:read", group=PLATFORM, icon="work_history", key="w")
async def show(view: View) -> None:
    parts.heading("Jobs", "two runs never overlap")
    await Table(
        view,
        "/jobs",
        (
            Column("name", "Name", href=lambda row: f"/jobs/{part(row['name'])}"),
            Column("what", "What it does", "long"),
            Column("nightly", "Nightly"),
            Column("result", "Last result", "badge", of=lambda row: _last(row, "result")),
            Column("started", "Started (UTC)", show=moment, of=lambda row: _last(row, "started")),
        ),
        empty=Empty("There are no jobs."),
        actions=[Action("play_arrow", "Run", lambda row: _run(view, str(row["name"])), "jobs:write")],
        rows=0,
    ).load()
    with parts.panel("Runs", note="the last ones of all jobs, the newest first"):
        job = Column("job", "Job", href=lambda run: f"/jobs/{part(run['job'])}")
        columns = (_RUNS[0], job, *_RUNS[1:])
        await Table(
            view,
            "/runs",
            columns,
            empty=Empty("No job has run yet.", command("job", "run", "usage"), "jobs:write"),
            rows=0,
        ).load()


@page("/jobs/{name}", title="Job", scope="jobs:read")
async def show_one(view: View) -> None:
    name = str(view.path["name"])
    row = await view.api.get(f"/jobs/{part(name)}")
    with parts.heading(name, str(row["what"])):
        if view.may("jobs:write"):
            ui.button("Forget its marks", on_click=lambda: _forget(view, name)).props("outline no-caps")
            ui.button("Run", icon="play_arrow", on_click=lambda: _run(view, name)).props("unelevated no-caps")
    for run in row["running"]:
        with parts.panel("Runs now"):
            ui.link(f"run {run['run']}, since {run['started']} on {run['host']}", f"/runs/{run['run']}")
    await Table(
        view,
        f"/jobs/{part(name)}/runs",
        _RUNS,
        empty=Empty("It has not run yet.", command("job", "run", name), "jobs:write"),
        rows=100,
    ).load()


@page("/runs/{number}", title="Run", scope="jobs:read")
async def show_run(view: View) -> None:
    number = str(view.path["number"])
    row = await view.api.get(f"/runs/{part(number)}")
    is_running = row["result"] == "running"
    with parts.heading(f"Run {number} of {row['job']}"):
        parts.badge(str(row["result"]))
        if row["options"].get("dry_run"):
            parts.badge("dry run: nothing is changed")
        if view.may("jobs:write") and is_running:
            ui.button("Cancel", color="negative", on_click=lambda: _cancel(view, number)).props("outline no-caps")
    run = _Run(view, number, ui.element("div"))
    run.draw(row, await run.log())
    if row["figures"].get("report"):
        await _report(view, number)
    if is_running:
        run.begin()


class _Run:
    """What a run has done so far, in a box: drawn anew when it has changed; at its end the whole page is."""

    def __init__(self, view: View, number: str, box: ui.element) -> None:
        self._timer: ui.timer | None = None
        self._view = view
        self._number = number
        self._box = box
        self._drawn: object = None

    async def log(self) -> tuple[bool, str]:
        """Return whether there is a log, and its newest lines or why not."""
        try:
            return True, await self._view.api.text(f"/runs/{part(self._number)}/log", lines=_LOG_LINES)
        except RefusalError as refusal:
            return False, refusal.detail

    def draw(self, row: Json, log: tuple[bool, str]) -> None:
        if self._drawn == (row, log):
            return
        self._drawn = (row, log)
        self._box.clear()
        with self._box:
            _draw_run(row)
            _draw_log(*log)

    def begin(self) -> None:
        """Follow it from now on."""
        self._timer = ui.timer(_POLL_S, self._follow, immediate=False)

    async def _follow(self) -> None:
        """Read it once more; its end, and a refusal, end this."""
        try:
            row = await self._view.api.get(f"/runs/{part(self._number)}")
        except RefusalError as refusal:
            self._end()
            self._view.tell(refusal)
            return
        if row["result"] != "running":
            self._end()
            ui.navigate.to(f"/runs/{part(self._number)}")
            return
        self.draw(row, await self.log())

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _draw_run(row: Json) -> None:
    with parts.grid():
        with parts.panel("Run"):
            parts.facts(
                [
                    ("Started (UTC)", moment(row["started"])),
                    ("Ended (UTC)", moment(row["ended"])),
                    ("Seconds", text(row["seconds"])),
                    ("By", f"{row['by']} on {row['host']}, process {row['pid']}"),
                    ("Options", text(row["options"])),
                    ("Says", text(row["text"])),
                ]
            )
        with parts.panel("Figures"):
            parts.facts([(str(name), text(value)) for name, value in row["figures"].items()])


def _draw_log(is_there: bool, lines: str) -> None:
    with parts.panel("Log", note=f"the newest {_LOG_LINES} lines"):
        if not is_there:
            ui.label(lines).classes("io-empty")
            return
        with ui.element("div").classes("io-lines io-log"):
            for line in lines.splitlines():
                ui.label(line).classes("io-code")


async def _report(view: View, number: str) -> None:
    with parts.panel("Report"):
        try:
            plots = (await view.api.page(f"/runs/{part(number)}/plots")).items
        except RefusalError as refusal:
            parts.problem(refusal)
            return
        ui.link("The whole report", f"/api/v1/runs/{part(number)}/report", new_tab=True)
        with parts.grid():
            for plot in plots:
                picture = ui.element("img").classes("io-fill")
                picture.props["src"] = str(plot["path"])
                picture.props["alt"] = f"plot {plot['name']} of the report"


async def _run(view: View, name: str) -> None:
    found = await view.do(view.api.get(f"/jobs/{part(name)}"))
    if found is None:
        return
    kinds = {str(each["name"]): str(each["kind"]) for each in found["options"]}
    given: Json = {each: kind == "flag" and each == "dry_run" for each, kind in kinds.items()}

    def draw() -> None:
        for each in found["options"]:
            if each["kind"] == "flag":
                ui.checkbox(str(each["what"])).bind_value(given, each["name"])
            else:
                given[each["name"]] = ""
                parts.field(str(each["what"]), given, each["name"])

    async def send() -> object | None:
        others = {each: given[each] for each in kinds if each not in ("full", "dry_run") and given[each]}
        body = {"is_full": given.get("full", False), "is_dry_run": given.get("dry_run", False), "options": others}
        made = await view.do(view.api.post(f"/jobs/{part(name)}:run", body), f"{name} is started.")
        if made is not None:
            ui.navigate.to(f"/runs/{made['run']}")
        return made

    def line() -> str:
        flags = [f"--{each.replace('_', '-')}" for each in ("full", "dry_run") if given.get(each)]
        return command("job", "run", name, *flags)

    def name_button(button: ui.button) -> None:
        if "dry_run" in given:
            button.bind_text_from(given, "dry_run", lambda is_dry: "Dry run" if is_dry else "Run")

    await dialogs.form(f"Run {name}", draw, send, verb="Run", command=line, name_button=name_button)


async def _forget(view: View, name: str) -> None:
    line = command("job", "forget", name)
    question = (
        "How far it has read the logs is forgotten, and they are trimmed without waiting for it. "
        "If it runs again, it starts at their beginning."
    )
    if await dialogs.confirm(f"Forget the marks of {name}", question, verb="Forget", command=line):
        made = await view.do(view.api.post(f"/jobs/{part(name)}:forget"))
        if made is not None:
            parts.notify(f"It held {', '.join(made['held']) or 'nothing'}.", "positive")


async def _cancel(view: View, number: str) -> None:
    question = "Its unfinished work is discarded; the results of earlier runs stay."
    line = command("job", "cancel", number)
    if not await dialogs.confirm(f"Cancel run {number}", question, verb="Stop it", command=line):
        return
    if await view.do(view.api.post(f"/runs/{part(number)}:cancel"), f"Run {number} was asked to stop.") is not None:
        ui.navigate.to(f"/runs/{part(number)}")
