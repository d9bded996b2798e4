"""One hub out of several workers for whoever looks from outside: metrics, readiness and status, asked of all and put together.

`OwnWorker` answers for this one, here and over links; `EveryWorker` asks the others and merges. How figures are merged is
`iothub_services.metrics.merging`'s, how states are is `iothub.hub.workers.worker_status`'s.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from twisted.internet.defer import Deferred, gatherResults

from iothub.hub.monitoring.health import Health
from iothub.hub.workers.worker_status import WorkerFacts, brief_of, page_of, readyz_of
from iothub.peers.commands import PeerCommands
from iothub.records.admin_commands import Json, Reply, Request, Verb, Verbs
from iothub_services.metrics import metrics
from iothub_services.metrics.exported import Exported, exported_file, last_exported
from iothub_services.metrics.exposition import TenantSeries, process_page, render_figures
from iothub_services.metrics.merging import Figure, Figures, Labels, figures_in, merge, rows_of, whole
from iothub_services.metrics.metrics import Kind, Metric

SILENCE_S = 2.0  # for which a worker may say nothing: less than a scraper waits, and the command line
_ROWS = 100  # in one frame
_TENANTS = 25  # between two turns of the reactor

Pause = Callable[[float], Awaitable[None]]


class OwnWorker:
    """On the reactor thread. `verbs`: what the other workers ask."""

    def __init__(self, health: Health, worker: int, folder: Path, pause: Pause) -> None:
        """`folder`: where the workers save what they have said."""
        self.health = health
        self.worker = worker
        self.folder = folder
        self._exported = Exported(exported_file(folder, worker))
        self._pause = pause
        self.verbs: Verbs = {
            Verb.WORKER_METRICS: self._metrics,
            Verb.WORKER_TENANTS: self._tenants,
            Verb.WORKER_STATUS: self._status,
        }

    @property
    def facts(self) -> WorkerFacts:
        return WorkerFacts(self.worker, self.health.number, brief=self.health.brief(), page=self.health.status())

    def metric_rows(self) -> list[Json]:
        """Return all figures of the platform page. They count as said."""
        registry = self.health.registry
        return [*rows_of(self._exported.export(registry.figures(is_in_parts=True))), *registry.process_rows()]

    async def tenant_rows(self, tenant: str | None, after: str, limit: int, reply: Reply) -> None:
        """Send a row for each tenant; the plane has its turns meanwhile. Raises UnavailableError: nobody listens."""
        rows: list[Json] = []
        for sample in self.health.tenants.samples(tenant, after, limit, is_in_parts=True):
            rows.append({"tenant": sample.tenant, "figures": list(rows_of(sample.series))})
            if len(rows) == _TENANTS:
                await reply.rows(rows)
                await self._pause(0)
                rows = []
        await reply.rows(rows)

    async def _metrics(self, _request: Request, reply: Reply) -> Json:
        rows = self.metric_rows()
        for start in range(0, len(rows), _ROWS):
            await reply.rows(rows[start : start + _ROWS])
        return {}

    async def _tenants(self, request: Request, reply: Reply) -> Json:
        tenant = request.argument.get("tenant")
        name = tenant if isinstance(tenant, str) else None
        await self.tenant_rows(name, request.text("after"), request.number("limit"), reply)
        return {}

    async def _status(self, _request: Request, _reply: Reply) -> Json:
        facts = self.facts
        return {"brief": facts.brief, "page": facts.page}


class EveryWorker:
    """Fulfils `iothub.net.http.Health`. On the reactor thread."""

    def __init__(self, own: OwnWorker, peers: PeerCommands, workers: int) -> None:
        """`workers`: how many there are; their nodes have numbers one after the other."""
        self._own = own
        self._peers = peers
        first = own.health.number - own.worker + 1
        self._others = {worker: first + worker - 1 for worker in range(1, workers + 1) if worker != own.worker}

    async def figures(self) -> Figures:
        """Return the figures of all workers together; of those that are silent, what they have said last."""
        rows, said = await self._metric_rows()
        return whole(merge([*map(figures_in, rows.values()), *said]))

    async def metrics(self) -> bytes:
        rows, said = await self._metric_rows()
        figures = whole(merge([*map(figures_in, rows.values()), *said]))
        figures[metrics.WORKERS] = {("up",): len(rows), ("silent",): len(said)}
        of_processes = {str(worker): [row for row in rows[worker] if "family" in row] for worker in sorted(rows)}
        return render_figures(figures) + process_page(of_processes)

    async def _metric_rows(self) -> tuple[dict[int, Sequence[Json]], list[Figures]]:
        """Return the rows of the workers that answer, and what the others have said last."""
        answers = await self._ask(Verb.WORKER_METRICS)
        rows: dict[int, Sequence[Json]] = {self._own.worker: self._own.metric_rows()}
        rows.update({worker: each.rows for worker, each in answers.items() if not each.silence})
        silent = [worker for worker, each in answers.items() if each.silence]
        return rows, [last_exported(exported_file(self._own.folder, worker)) for worker in silent]

    async def tenant_metrics(self, tenant: str | None, after: str, limit: int) -> Iterator[bytes]:
        argument = {"tenant": tenant, "after": after, "limit": limit}
        own = _Rows()
        await self._own.tenant_rows(tenant, after, limit, own)
        answers = {self._own.worker: _Answer(own.all), **await self._ask(Verb.WORKER_TENANTS, argument)}
        return self._own.health.tenants.render_samples(_tenants_of(answers, limit))

    async def readyz(self) -> Json:
        return readyz_of(await self._facts())

    async def status(self) -> Json:
        """Return the page of `/status`."""
        return page_of(self._own.facts, await self._facts())

    async def brief(self) -> Json:
        """Return what the hub answers to `iothub status`."""
        return brief_of(self._own.facts, await self._facts())

    async def _facts(self) -> list[WorkerFacts]:
        answers = await self._ask(Verb.WORKER_STATUS)
        found = [
            WorkerFacts(worker, self._others[worker], each.silence, each.part("brief"), each.part("page"))
            for worker, each in answers.items()
        ]
        return sorted([self._own.facts, *found], key=lambda each: each.worker)

    async def _ask(self, verb: Verb, argument: Json | None = None) -> dict[int, _Answer]:
        """Ask every other worker; each has answered, or is known to be silent, within the time that it may be."""
        request = Request(verb, "", argument or {})
        asked: list[Deferred[_Answer]] = [
            Deferred.fromCoroutine(self._ask_one(node, request)) for node in self._others.values()
        ]
        return dict(zip(self._others, await gatherResults(asked), strict=True))

    async def _ask_one(self, node: int, request: Request) -> _Answer:
        rows = _Rows()
        answer = await self._peers.ask(node, request, rows, SILENCE_S)
        return _Answer(rows.all, answer.result, "" if answer.error is None else str(answer.error))


class _Rows:
    """The rows of one worker, as they come. Fulfils `Reply`."""

    def __init__(self) -> None:
        self.all: list[Json] = []

    async def rows(self, rows: Sequence[Json]) -> None:
        self.all += rows


@dataclass(frozen=True, slots=True)
class _Answer:
    """What one worker has said. `silence`: why it is not all."""

    rows: Sequence[Json]
    result: Json = field(default_factory=dict)
    silence: str = ""

    def part(self, name: str) -> Json:
        found = self.result.get(name)
        return found if isinstance(found, Mapping) else {}


def _tenants_of(answers: Mapping[int, _Answer], limit: int) -> Iterator[TenantSeries]:
    """Merge tenant by tenant. Each worker has sent the first names that it has, so the first ones of all are whole."""
    by_tenant: dict[str, list[Mapping[Metric, Mapping[Labels, Figure]]]] = {}
    for worker, answer in answers.items():
        for row in () if answer.silence else answer.rows:
            figures = row.get("figures")
            if isinstance(figures, list):
                labelled = _of_worker(worker, figures_in(figures))
                by_tenant.setdefault(str(row.get("tenant")), []).append(labelled)
    for tenant in sorted(by_tenant)[:limit]:
        yield TenantSeries(tenant, _gauges_whole(merge(by_tenant[tenant])))


def _of_worker(worker: int, figures: Mapping[Metric, Mapping[Labels, Figure]]) -> dict[Metric, Mapping[Labels, Figure]]:
    """Name the worker in the labels of counters: a sum would fall when one of them begins anew."""
    return {
        metric: series
        if metric.kind is Kind.GAUGE
        else {(*labels, str(worker)): figure for labels, figure in series.items()}
        for metric, series in figures.items()
    }


def _gauges_whole(
    figures: Mapping[Metric, Mapping[Labels, Figure]],
) -> dict[Metric, Mapping[Labels, Figure]]:
    gauges = whole({metric: series for metric, series in figures.items() if metric.kind is Kind.GAUGE})
    return {metric: gauges.get(metric, series) for metric, series in figures.items()}
