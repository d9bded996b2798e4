"""Admin requests between hubs: asks every linked hub, and answers what the others ask.

Knows no verb and no connection: requests are those of `iothub.records.admin_commands`, a `CommandLinks` carries them. What comes over a link
is answered by this hub alone, never asked on.

    asker    REQUEST   ...   CANCEL: it waits no more
    other    ROWS ...   ANSWER: the result or an error

Invariants: of one peer at most `UNDER_WAY` requests are answered at a time; an answer is at most `ANSWER_BYTES` long, at both sides; whoever
says nothing for as long as the asker allows has not answered, and what still comes from there is passed over. What changes something is
finished although its asker has left.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall

from iothub.base import log as logging
from iothub.base.errors import IotHubError, UnavailableError
from iothub.net import admin_frames
from iothub.peers.frames import BadFrameError, FrameType, pack, unpack
from iothub.peers.ports import PeerId
from iothub.records.admin_commands import Json, Reply, Request, Verbs, answer_with

UNDER_WAY = 16  # as many as the local socket has connections
ANSWER_BYTES = 4 << 20
TYPES = (FrameType.REQUEST, FrameType.ROWS, FrameType.ANSWER, FrameType.CANCEL)

Later = Callable[[float, Callable[[], None]], IDelayedCall]

log = logging.get(__name__)


@dataclass(frozen=True, slots=True)
class PeerAnswer:
    """What came of a request at one hub. `error`: its refusal, or why there is no answer; None: `result` is what it has found."""

    node: int
    result: Json = field(default_factory=dict)
    error: IotHubError | None = None


class PeerCommands(Protocol):
    """Asks other hubs."""

    async def ask_all(self, request: Request, reply: Reply, silence_s: float) -> list[PeerAnswer]:
        """Ask every linked hub; its rows go to `reply` as they come. Raises UnavailableError: nobody listens at `reply` any more."""

    async def ask(self, node: int, request: Request, reply: Reply, silence_s: float) -> PeerAnswer:
        """Ask one hub, as `ask_all`."""


class NoPeers:
    """Fulfils `PeerCommands` for a hub without links."""

    async def ask_all(self, _request: Request, _reply: Reply, _silence_s: float) -> list[PeerAnswer]:
        return []

    async def ask(self, node: int, _request: Request, _reply: Reply, _silence_s: float) -> PeerAnswer:
        return _unlinked(node)


class CommandLinks(Protocol):
    """The part of `iothub.peers.links.Links` that is used."""

    def send(self, peer: PeerId, frame_type: FrameType, body: bytes) -> object: ...

    def up(self) -> tuple[PeerId, ...]: ...

    def is_full(self, peer: PeerId) -> bool: ...


class LinkCommands:
    """Fulfils `PeerCommands`, and `Receiver` of `TYPES`. On the reactor thread."""

    def __init__(self, links: CommandLinks, own: Verbs, later: Later) -> None:
        """`own`: what other hubs may ask, answered for this hub alone."""
        self._links = links
        self._own = own
        self._later = later
        self._ids = count(1)
        self._questions: dict[tuple[PeerId, int], _Question] = {}
        self._replies: dict[tuple[PeerId, int], _LinkReply] = {}

    # --- asking

    async def ask_all(self, request: Request, reply: Reply, silence_s: float) -> list[PeerAnswer]:
        return await self._ask_these(self._links.up(), request, reply, silence_s)

    async def ask(self, node: int, request: Request, reply: Reply, silence_s: float) -> PeerAnswer:
        peers = [peer for peer in self._links.up() if peer.node == node]
        answers = await self._ask_these(peers, request, reply, silence_s)
        return answers[0] if answers else _unlinked(node)

    async def _ask_these(
        self, peers: Iterable[PeerId], request: Request, reply: Reply, silence_s: float
    ) -> list[PeerAnswer]:
        rows = _Rows(reply)
        questions = [self._ask(peer, request, rows, silence_s) for peer in peers]
        try:
            await rows.pass_on()
        except UnavailableError:
            for question in questions:
                if question.answer is None:
                    self._give_up(question, "the asker has left")
            raise
        return [question.answer for question in questions if question.answer is not None]

    def _ask(self, peer: PeerId, request: Request, rows: _Rows, silence_s: float) -> _Question:
        question = _Question(peer, next(self._ids), rows, silence_s)
        fields = {"verb": request.verb, "tenant": request.tenant, "argument": request.argument}
        body = pack({"id": question.number, **fields})
        self._questions[question.key] = question
        rows.expect_peer()
        question.deadline = self._later(silence_s, lambda: self._give_up(question, f"no answer within {silence_s:g} s"))
        try:
            if self._links.is_full(peer):
                raise UnavailableError("its link is full")
            self._links.send(peer, FrameType.REQUEST, body)
        except UnavailableError as error:
            self._end(question, PeerAnswer(peer.node, error=error))
        return question

    def _give_up(self, question: _Question, why: str) -> None:
        self._end(question, PeerAnswer(question.peer.node, error=UnavailableError(why)))
        with suppress(UnavailableError):
            self._links.send(question.peer, FrameType.CANCEL, pack({"id": question.number}))

    def _end(self, question: _Question, answer: PeerAnswer) -> None:
        del self._questions[question.key]
        question.answer = answer
        if question.deadline is not None and question.deadline.active():
            question.deadline.cancel()
        question.rows.end_peer()

    # --- Receiver

    def frame(self, peer: PeerId, frame_type: FrameType, body: bytes) -> None:
        """Take a frame of `TYPES`. Raises BadFrameError."""
        fields = _fields(body)
        number = fields.pop("id", None)
        if not isinstance(number, int) or isinstance(number, bool):
            raise BadFrameError(f"a {frame_type.name} without the number of its request")
        try:
            if frame_type is FrameType.REQUEST:
                self._take_request(_LinkReply(self._links, peer, number), admin_frames.request_in(fields))
            elif frame_type is FrameType.CANCEL:
                self._take_cancel(peer, number)
            elif question := self._questions.get((peer, number)):  # else it was given up: its asker knows that
                self._take_answer(question, frame_type, fields, len(body))
        except admin_frames.BadFrameError as error:
            raise BadFrameError(str(error)) from None

    def peer_up(self, peer: PeerId) -> None:
        """Whoever comes is asked from the next request on."""

    def peer_gone(self, peer: PeerId) -> None:
        for question in [each for each in self._questions.values() if each.peer == peer]:
            self._end(question, PeerAnswer(peer.node, error=UnavailableError("it is gone")))
        for key in [each for each in self._replies if each[0] == peer]:
            self._replies.pop(key).is_over = True

    def _take_answer(self, question: _Question, frame_type: FrameType, fields: dict[str, object], size: int) -> None:
        answer = _answer_in(question.peer.node, fields) if frame_type is FrameType.ANSWER else None
        rows = () if answer is not None else admin_frames.rows_in({"rows": fields.get("rows")}) or ()
        question.bytes += size
        if question.bytes > ANSWER_BYTES:
            self._give_up(question, f"its answer has more than {ANSWER_BYTES} bytes")
        elif answer is not None:
            self._end(question, answer)
        else:
            question.rows.add(rows)
            if question.deadline is not None:
                question.deadline.reset(question.silence_s)

    # --- answering

    def _take_request(self, reply: _LinkReply, request: Request) -> None:
        if reply.key in self._replies:
            raise BadFrameError("a request with the number of one that is under way")
        if sum(peer == reply.peer for peer, _ in self._replies) >= UNDER_WAY:
            reply.end(admin_frames.refusal(UnavailableError(f"{UNDER_WAY} requests of this hub are under way there")))
            return
        self._replies[reply.key] = reply
        Deferred.fromCoroutine(self._answer(request, reply))

    async def _answer(self, request: Request, reply: _LinkReply) -> None:
        try:
            last: Json = {"result": await answer_with(self._own, request, reply)}
        except IotHubError as error:
            last = admin_frames.refusal(error)
        except Exception as error:  # noqa: BLE001, RUF100 - protocol edge: the asker hears of a defect, too
            log.error("defect in an admin request of another hub", verb=request.verb, exc_info=error)
            last = admin_frames.refusal(IotHubError("internal error; see its log"))
        note = log.info if request.is_change else log.debug
        note("admin request of another hub", verb=request.verb, tenant=request.tenant, node=reply.peer.node)
        self._replies.pop(reply.key, None)
        reply.end(last)

    def _take_cancel(self, peer: PeerId, number: int) -> None:
        reply = self._replies.get((peer, number))
        if reply is not None:  # else its answer is under way
            reply.is_over = True


class _Rows:
    """The rows of all peers on their way to one asker: in one call at a time, and bounded by what a peer may answer."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self._arrived: list[Sequence[Json]] = []
        self._peers = 0
        self._news: Deferred[None] = Deferred()

    def expect_peer(self) -> None:
        self._peers += 1

    def add(self, rows: Sequence[Json]) -> None:
        """Pass rows on; none at all: a sign of life."""
        self._arrived.append(rows)
        self._wake()

    def end_peer(self) -> None:
        self._peers -= 1
        self._wake()

    async def pass_on(self) -> None:
        """Return when no peer is expected any more. Raises UnavailableError: nobody listens."""
        while self._peers or self._arrived:
            if not self._arrived:
                self._news = Deferred()
                await self._news
                continue
            arrived, self._arrived = self._arrived, []
            await self._reply.rows([row for rows in arrived for row in rows])

    def _wake(self) -> None:
        if not self._news.called:
            self._news.callback(None)


class _Question:
    """One request at one peer. `answer`: None until it has come, or was given up."""

    __slots__ = ("answer", "bytes", "deadline", "number", "peer", "rows", "silence_s")

    def __init__(self, peer: PeerId, number: int, rows: _Rows, silence_s: float) -> None:
        self.peer = peer
        self.number = number
        self.rows = rows
        self.silence_s = silence_s
        self.bytes = 0
        self.deadline: IDelayedCall | None = None
        self.answer: PeerAnswer | None = None

    @property
    def key(self) -> tuple[PeerId, int]:
        return self.peer, self.number


class _LinkReply:
    """Sends an answer over a link. Fulfils `Reply`. `is_over`: nobody there waits for it any more."""

    def __init__(self, links: CommandLinks, peer: PeerId, number: int) -> None:
        self._links = links
        self.peer = peer
        self._number = number
        self._bytes = 0
        self.is_over = False

    @property
    def key(self) -> tuple[PeerId, int]:
        return self.peer, self._number

    async def rows(self, rows: Sequence[Json]) -> None:
        if self.is_over:
            raise UnavailableError("the hub that asked does not wait any more")
        self._send(FrameType.ROWS, {"rows": list(rows)})

    def end(self, last: Json) -> None:
        """Send the result or the error."""
        if self.is_over:
            return
        self.is_over = True
        with suppress(UnavailableError):  # it is gone
            try:
                self._send(FrameType.ANSWER, last)
            except _TooLongError as error:
                self._bytes = 0
                self._send(FrameType.ANSWER, admin_frames.refusal(error))

    def _send(self, frame_type: FrameType, fields: Json) -> None:
        """Raises UnavailableError: it cannot be sent."""
        body = pack({"id": self._number, **fields})
        self._bytes += len(body)
        if self._bytes > ANSWER_BYTES:
            raise _TooLongError(f"the answer has more than {ANSWER_BYTES} bytes")
        self._links.send(self.peer, frame_type, body)


class _TooLongError(UnavailableError):
    """An answer is longer than a peer takes."""


def _unlinked(node: int) -> PeerAnswer:
    return PeerAnswer(node, error=UnavailableError("there is no link to it"))


def _fields(body: bytes) -> dict[str, object]:
    """Return a body, which must be a JSON object. Raises BadFrameError."""
    fields = unpack(body)
    try:
        json.dumps(fields)
    except (TypeError, ValueError, RecursionError):
        raise BadFrameError("a body with more than JSON has, expected texts, numbers, lists and maps") from None
    return fields


def _answer_in(node: int, fields: Json) -> PeerAnswer:
    """Return the last frame of an answer. Raises BadFrameError."""
    try:
        if admin_frames.rows_in(fields) is None:
            return PeerAnswer(node, admin_frames.result_in(fields))
    except admin_frames.BadFrameError:
        raise
    except IotHubError as error:
        return PeerAnswer(node, error=error)
    raise BadFrameError("rows, expected a result or an error")
