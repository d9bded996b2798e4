# cython: annotation_typing=False
"""The regions of table `queues`, and operations on their way into them: one call of the coprocessor takes queues of one region.

Knows how operations are grouped, and what an error of a call means for each of them; knows nothing of what they do.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from iothub.base.errors import BackendError, CorruptRecordError
from iothub.records import keys
from iothub_services.hbase import calls
from iothub_services.hbase.caller import Caller
from iothub_services.hbase.calls import Call
from iothub_services.queues.damage import DamagedQueues
from iothub_services.queues.hbase import requests
from iothub_services.queues.hbase.index import all_of
from iothub_services.queues.hbase.requests import Result, Status, Step

REQUEST_BYTES = 4 << 20  # of one call, but for a single message that is larger
_MOVED = "is not in region"
_FIRST_ROW = b"\0"
_PROBE_TENANT = 0  # no account has it
_ROW_BYTES = 8
_DAMAGED = int(Status.DAMAGED)
_GONE: Result = int(Status.GONE), bytes(8)  # of nothing that a drop has removed

Outcome = Result | BackendError


class Regions:
    """Sends operations.

    Invariants: operations on one region take the same connection, one after another, and those on all regions take all connections. `failing`:
    starts of regions whose last call failed.
    """

    def __init__(self, caller: Caller, table: bytes, damage: DamagedQueues, request_bytes: int = REQUEST_BYTES) -> None:
        self._caller = caller
        self._table = table
        self._damage = damage
        self.request_bytes = request_bytes
        self._starts: list[bytes] = [b""]
        self.failing: set[bytes] = set()

    def load(self) -> None:
        """Learn where the regions begin. Raises BackendError."""
        starts = [region.start for region in self._caller.call(calls.regions(self._table))]
        self._starts = sorted({b"", *starts})

    def send_steps(self, steps: Sequence[Step]) -> list[Outcome]:
        """Do operations; return the outcome of each, in their order. Those of one queue go in their order.

        A damaged queue is gone. An error is one of the whole call that an operation was in: it may be sent again as it is. If it is not
        `is_written`, nothing of it was done.
        """
        outcomes: list[Outcome] = [_UNSENT] * len(steps)
        moved = self._send(steps, range(len(steps)), outcomes)
        if moved:  # the regions are others than before
            try:
                self.load()
            except BackendError as error:
                for at in moved:
                    outcomes[at] = error  # refused as a whole, so nothing of it was done
            else:
                self._send(steps, moved, outcomes)
        return outcomes

    def one(self, step: Step) -> Result:
        """Do one operation. Raises BackendError."""
        (outcome,) = self.send_steps((step,))
        if isinstance(outcome, BackendError):
            raise outcome
        return outcome

    def ask(self, column: bytes, asked: bytes) -> list[bytes]:
        """Get a column of each region, with an attribute. Raises BackendError."""
        attributes = {requests.ASKED: asked}
        gets = [calls.get_row(self._table, start or _FIRST_ROW, (column,), attributes) for start in self._starts]
        return [b"" if row is None else row.cells[column].value for row in all_of(self._caller.call_many(gets))]

    def probe_keys(self) -> list[bytes]:
        """Return the key of a queue of nobody in each region that fails, or in the first."""
        starts = [start for start in self._starts if start in self.failing] or self._starts[:1]
        return [
            start.ljust(_ROW_BYTES, b"\0")[: _ROW_BYTES - 1] + b"\xff" + keys.tenant_key(_PROBE_TENANT)
            for start in starts
        ]

    def _send(self, steps: Sequence[Step], chosen: Iterable[int], outcomes: list[Outcome]) -> list[int]:
        """Fill in outcomes of the chosen operations; return those that were sent to a region that does not have them."""
        parts = self._parts(steps, chosen)
        sent = [self._call(region, [steps[at] for at in part]) for region, part in parts]
        starts = self._starts
        moved: list[int] = []
        for (region, part), answer in zip(parts, self._caller.call_many(sent), strict=True):
            results = _results(answer, len(part))
            if isinstance(results, BackendError):
                self.failing.add(starts[region])
                moved += part if _MOVED in str(results) else ()
                for at in part:
                    outcomes[at] = results
            else:
                self.failing.discard(starts[region])
                for at, each in zip(part, results, strict=True):
                    outcomes[at] = each if each[0] != _DAMAGED else self._lost(steps[at], each)
        return moved

    def _lost(self, step: Step, result: Result) -> Result:
        """A damaged queue is gone."""
        self._damage.found(keys.split_queue_key(step[0])[0], requests.damage(result[1]))
        return _GONE

    def _parts(self, steps: Sequence[Step], chosen: Iterable[int]) -> list[tuple[int, list[int]]]:
        """Group operations into calls: by the number of their region, of bounded size."""
        starts = self._starts
        by_region: dict[int, list[int]] = {}
        for at in chosen:
            region = bisect_right(starts, steps[at][0]) - 1
            group = by_region.get(region)
            if group is None:
                by_region[region] = [at]
            else:
                group.append(at)
        return [(region, part) for region, group in by_region.items() for part in self._bounded(steps, group)]

    def _bounded(self, steps: Sequence[Step], group: list[int]) -> list[list[int]]:
        """Cut what goes to one region into calls."""
        if len(group) <= requests.MOST_STEPS and sum([len(steps[at][1]) for at in group]) <= self.request_bytes:
            return [group]
        parts: list[list[int]] = []
        size_bytes = 0
        for at in group:
            size = len(steps[at][1])
            if not parts or size_bytes + size > self.request_bytes or len(parts[-1]) == requests.MOST_STEPS:
                parts.append([])
                size_bytes = 0
            parts[-1].append(at)
            size_bytes += size
        return parts

    def _call(self, region: int, steps: Sequence[Step]) -> Call[bytes]:
        row = keys.meta_row(steps[0][0])
        return calls.append_pieces(self._table, row, requests.CHANGE, requests.request(steps), pin=region)


_UNSENT = BackendError("not sent to HBase", retryable=True)


def _results(answer: bytes | BackendError, count: int) -> list[Result] | BackendError:
    if isinstance(answer, BackendError):
        return answer
    try:
        results = requests.answers(answer)
    except CorruptRecordError as error:
        return BackendError(str(error), retryable=False, is_written=True)
    if len(results) != count:
        text = f"the queue coprocessor answered {len(results)} of {count} operations: is the table `queues` ours?"
        return BackendError(text, retryable=False, is_written=True)
    return results
