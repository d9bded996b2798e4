# cython: annotation_typing=False
"""One connection of a link: bytes into frames, HELLO first, and the frames to the link that it turns out to belong to.

Knows no other connection: `iothub/peers/links.py` judges the HELLO and decides what a fault means.
"""

from __future__ import annotations

from typing import Protocol

from iothub.base.reasons import PeerRefusal
from iothub.peers import frames
from iothub.peers.frames import BadFrameError, FrameType, Hello
from iothub.peers.framing import FrameDecoder
from iothub.peers.link import Link
from iothub.peers.ports import PeerId, Wire


class ConnectionJudge(Protocol):
    """Who decides about connections: `Links`."""

    def take_hello(self, connection: Connection, hello: Hello) -> None: ...

    def take_refusal(self, connection: Connection, refusal: PeerRefusal, detail: str) -> None: ...

    def take_leaving(self, connection: Connection) -> None: ...

    def take_bad_frame(self, connection: Connection, error: BadFrameError) -> None: ...

    def take_loss(self, connection: Connection, reason: str) -> None: ...

    def changed(self) -> None: ...


class Connection:
    """A wire's owner. `dialled`: whom this hub wanted; None if the wire was accepted. `deadline`: for the HELLO, of `boottime`.

    Invariants: nothing is handed on before a HELLO was accepted (`link` is set), nor after `close`, in the same chunk either.
    Somebody who has not said HELLO makes this hub hold `HELLO_BYTES` at most.
    """

    def __init__(self, judge: ConnectionJudge, wire: Wire, dialled: PeerId | None, deadline: float) -> None:
        self.wire = wire
        self.dialled = dialled
        self.deadline = deadline
        self.link: Link | None = None
        self.node: int | None = dialled.node if dialled is not None else wire.certified_node
        self._is_closed = False
        self._judge = judge
        self._decoder = FrameDecoder(frames.HELLO_BYTES)

    def is_open(self) -> bool:
        return not self._is_closed

    def received(self, data: bytes) -> None:
        link = self.link
        has_changed = True
        if link is not None:
            link.received_bytes += len(data)
            has_changed = not link.is_ack_due()  # else a tick follows soon in any case
        decoder = self._decoder
        try:
            decoder.add(data)
            while not self._is_closed and decoder.cut():
                link = self.link
                if decoder.is_reliable and link is not None:
                    link.apply_frame(decoder.frame_type, decoder.number, decoder.body)
                else:
                    has_changed = True
                    self._take_frame(decoder.frame_type, decoder.body)
        except BadFrameError as error:
            has_changed = True
            if self.is_open():
                self._judge.take_bad_frame(self, error)
        finally:
            if has_changed:
                self._judge.changed()

    def lost(self, reason: str) -> None:
        if self.is_open():
            self._judge.take_loss(self, reason)
            self._judge.changed()

    def begin(self, link: Link, frame_bytes: int) -> None:
        """Give what comes from now on to a link."""
        self.link = link
        self._decoder.frame_bytes = frame_bytes

    def close(self) -> None:
        """Read nothing more, what has arrived already included."""
        self._is_closed = True
        self.wire.close()

    def _take_frame(self, frame_type: FrameType, body: bytes) -> None:
        if frame_type == FrameType.REFUSED:
            self._take_refusal(body)
        elif self.link is not None and frame_type == FrameType.LEAVING:
            self._judge.take_leaving(self)
        elif self.link is not None:
            self.link.take_frame(frame_type, body)
        elif frame_type == FrameType.HELLO:
            self._judge.take_hello(self, Hello.decode(body))
        else:
            raise BadFrameError(f"a frame of type {frame_type.name}, expected HELLO")

    def _take_refusal(self, body: bytes) -> None:
        word, detail = frames.refusal_of(body)
        try:
            refusal = PeerRefusal(word)
        except ValueError:
            raise BadFrameError(f"refused by an unknown word {word!r}: {detail}") from None
        self._judge.take_refusal(self, refusal, detail)
