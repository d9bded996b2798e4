"""Any bytes in a frame of the store process are a request of one of its ports or a FrameError; what is read is written as it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from iothub_services.queues.port import Append, Delivery, Inbound, Move, MoveKind, QueueLimits
from iothub_services.store_process import checkpoints, commits, events, ledger, queues, retained, states
from iothub_services.store_process.frames import FrameError, pack, unpack
from iothub_services.store_process.verbs import ANSWER, HELLO, REQUEST, WELCOME, Verb, read_args, read_outcome

PORTS: Sequence[Mapping[str, Verb]] = tuple(
    port.VERBS for port in (queues, retained, events, states, checkpoints, commits, ledger)
)

_APPEND = Append(b"i" * 16, b"body", 7, (Delivery(1, 2, 1, (3, 4)), Delivery(5, 0)), Inbound(9, 1 << 62, 65_535))

SEEDS: Sequence[bytes] = (
    pack((1, "queues", b"c" * 16)),
    pack((5, "write", ([Move(MoveKind.ACK, 1, 2, 3)], [_APPEND]))),
    pack((6, "create", (7, 1, QueueLimits(), 1))),
    pack((7, "append_rows", [[("iothub.session-events", "7/client", b"{}")]])),
    pack((8, "put", [[(7, b"a/b", None, 0)]])),
    pack((9, "page", (None, (7, "client"), 500))),
    pack((9, "run", ("0" * 40, ["key"], [b"b", 1, 0.5]))),
    pack((9, pack((True, 7)), (3, [(7, 1, 2)]))),
    pack((True, (5, "text", False, False, ""))),
)


def target(data: bytes) -> None:
    """Read the bytes as everything that a frame may be."""
    for read in (HELLO, ANSWER, WELCOME):
        try:
            fields = read(unpack(data))
        except FrameError:
            continue
        assert read(unpack(pack(fields))) == fields
    for verbs in PORTS:
        _read_request(data, verbs)
        for verb in verbs.values():
            try:
                read_outcome(data, verb.answer)
            except FrameError:
                continue
            except Exception as error:
                if "iothub" not in type(error).__module__:
                    raise  # else it is the error that the bytes say


def _read_request(data: bytes, verbs: Mapping[str, Verb]) -> None:
    try:
        _, name, args = REQUEST(unpack(data))
        verb = verbs.get(name)
        if verb is None:
            return
        read = read_args(verb, args)
    except FrameError:
        return
    if verbs is queues.VERBS:
        again = unpack(pack(read))
        assert isinstance(again, tuple)
        assert read_args(verb, again) == read
