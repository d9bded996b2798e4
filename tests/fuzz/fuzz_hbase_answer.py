"""Any bytes in place of a gateway's answers are an answer, a BackendError or a broken pipeline; each call is answered at most once."""

from __future__ import annotations

from collections.abc import Sequence

from iothub.base.errors import BackendError
from iothub_services.hbase import calls, thrift
from iothub_services.hbase.calls import Call
from iothub_services.hbase.pipeline import PendingCall, Pipeline
from iothub_services.hbase.replies import Scanner
from tests.support.hbase.hbase_gateway import FakeGateway, framed

CALLS: tuple[Call[object], ...] = (
    calls.append(b"t", b"r", b"f:a", b"value"),
    calls.check_and_put(b"t", b"r", b"f:a", None, (b"f:a", b"1")),
    calls.mutate_rows(b"t", [calls.Mutation(b"r2", {b"f:a": b"1"})]),
    calls.get_rows(b"t", [b"r", b"r2"]),
    calls.get_row(b"nope", b"r"),
    calls.families(b"t"),
    calls.regions(b"t"),
    calls.open_scan(calls.Scan(b"t")),
    calls.next_rows(Scanner(0, 0), 5, b""),
    calls.increment(b"t", b"r3", b"f:n", 1),
)


def _answers(call: Call[object]) -> bytes:
    gateway = FakeGateway()
    gateway.tables[b"t"] = {b"r": {b"f:a": (b"old", 1)}}
    family = thrift.text(b"f:") + thrift.field(thrift.STRING, 1) + thrift.text(b"f:") + thrift.END
    gateway.verbs["getColumnDescriptors"] = lambda _: (thrift.MAP, b"\x0b\x0c" + thrift.i32(1) + family)
    region = (
        thrift.field(thrift.STRING, 1) + thrift.text(b"a") + thrift.field(thrift.I64, 3) + thrift.i64(1) + thrift.END
    )
    gateway.verbs["getTableRegions"] = lambda _: (thrift.LIST, thrift.structs([region]))
    return framed(gateway.answer(call.frame(1)[4:]))


SEEDS: Sequence[bytes] = tuple(bytes((number,)) + _answers(call) for number, call in enumerate(CALLS))


class _Nobody:
    is_over = False

    def on_outcome(self, index: int, outcome: bytes | BackendError) -> None:
        """The pipeline alone is looked at."""


def target(data: bytes) -> None:
    """Take the call from the first byte, what its gateway sends from the rest, in two pieces."""
    if not data:
        return
    pipeline: Pipeline = Pipeline(1 << 16)
    sent = [PendingCall(CALLS[data[0] % len(CALLS)], _Nobody()) for _ in range(2)]
    for pending in sent:
        pipeline.encode_call(pending)
    half = 1 + len(data) // 2
    answered = [*pipeline.receive(data[1:half]), *pipeline.receive(data[half:])]
    assert [pending for pending, _ in answered] == sent[: len(answered)]
    assert pipeline.in_flight == len(sent) - len(answered)
    for pending, frame in answered:
        try:
            pending.call.decode(frame)
        except BackendError:
            continue
