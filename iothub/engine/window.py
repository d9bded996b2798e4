# cython: annotation_typing=False
"""The outbound window of one session: positions, packet identifiers, what is in flight, and how far it is durable.

Knows no messages, no sockets and no store: it says what may be sent and what must be asked for; `outbound` does both.

Theory. Deliveries with QoS > 0 have positions 1, 2, 3, ... A transient session counts its own; a persistent one's are its queue's. The Packet
Identifier is a function of the position, so a resend after any crash has its original identifier with nothing stored [MQTT-4.4.0-1].

    durable_head <= base <= taken            sent_upto, reserved: "may have been sent", in memory and durable
         |            |        |
         |            |        +-- last position sent or skipped
         |            +----------- everything up to here is completed (states[0] belongs to base + 1)
         +------------------------ ... and durably so (persistent), else equal to base

Invariants. taken - durable_head < 65535, so no identifier names two positions. `in_flight` counts the states that are not DONE.
`released` holds positions above `taken` whose PUBREC was seen before this connection: PUBREL goes out first, PUBLISH never.
"""

from __future__ import annotations

DONE = 0
WAIT_PUBACK = 1
WAIT_PUBREC = 2
RELEASING = 3  # PUBREC seen, not yet durable: PUBREL must wait
WAIT_PUBCOMP = 4

SPAN = 65535


def packet_id_of(position: int) -> int:
    """Return the Packet Identifier of a position: 1 to 65535, the first position of a session has 1 [MQTT-2.2.1-4]."""
    return (position - 1) % SPAN + 1


class Window:
    """See the module. `limit` is the client's Receive Maximum or `mqtt.max_inflight`."""

    def __init__(self, limit: int, is_durable: bool) -> None:
        self.limit = limit
        self.is_durable = is_durable
        self.base = 0
        self.taken = 0
        self.durable_head = 0
        self.asked_head = 0
        self.reserved = 0
        self.asked_reserved = 0
        self.sent_upto = -1  # -1: this hub does not know yet; the first restore says
        self.in_flight = 0
        self.states = bytearray()
        self.released: dict[int, bool] | None = None  # position -> whether PUBCOMP was seen
        self.done: set[int] | None = None  # completed on an earlier connection, beyond what was not: never sent again

    def has_room(self) -> bool:
        """Whether one more PUBLISH may be in flight [MQTT-3.3.4-7] [MQTT-3.3.4-9]; the span counts from the durable head."""
        return self.in_flight < self.limit and self.taken + 1 - self.durable_head < SPAN

    def is_within_span(self) -> bool:
        return self.taken + 1 - self.durable_head < SPAN

    def send(self, qos: int) -> int:
        """Take the next position as sent; return its Packet Identifier."""
        self.taken += 1
        if self.taken > self.sent_upto:
            self.sent_upto = self.taken
        self.states.append(WAIT_PUBACK if qos == 1 else WAIT_PUBREC)
        self.in_flight += 1
        return packet_id_of(self.taken)

    def skip(self) -> None:
        """Take the next position without sending it: dropped, expired, denied, too large, or QoS 0."""
        self.taken += 1
        if self.base + 1 == self.taken:
            self.base = self.taken
            if not self.is_durable:
                self.durable_head = self.base
        else:
            self.states.append(DONE)

    def take_released(self) -> None:
        """Take the next position, which was released before this connection: only its PUBCOMP is awaited, if that."""
        released = self.released
        if released is not None and released.pop(self.taken + 1, False):
            self.skip()
            return
        self.taken += 1
        self.states.append(WAIT_PUBCOMP)
        self.in_flight += 1

    def is_released(self, position: int) -> bool:
        return self.released is not None and position in self.released

    def is_done(self, position: int) -> bool:
        """Whether an earlier connection has completed this position; the hub remembers as long as it lives."""
        return self.done is not None and position in self.done

    def find(self, packet_id: int) -> int:
        """Return the position that a Packet Identifier names now, or 0."""
        first = self.base + 1
        position = first + (packet_id - first) % SPAN
        if position <= self.taken or (self.released is not None and position in self.released):
            return position
        return 0

    def state(self, position: int) -> int:
        if self.base < position <= self.taken:
            return self.states[position - self.base - 1]
        if self.released is not None and self.released.get(position) is False:
            return WAIT_PUBCOMP
        return DONE

    def set_state(self, position: int, state: int) -> None:
        """Change the state of a position in flight; it stays in flight."""
        self.states[position - self.base - 1] = state

    def complete(self, position: int) -> None:
        """The client is done with this position; `base` moves over everything that is."""
        if position > self.taken:
            if self.released is not None:
                self.released[position] = True
            return
        states = self.states
        index = position - self.base - 1
        states[index] = DONE
        self.in_flight -= 1
        if index == 0:
            end = len(states)
            index = 1
            while index < end and states[index] == DONE:
                index += 1
            del states[:index]
            self.base += index
            if not self.is_durable:
                self.durable_head = self.base

    def restore(self, head: int, tail: int, reserved: int, released: tuple[int, ...]) -> None:
        """Begin again at the durable head, as a claim found it.

        After a crash it is not known what was sent: everything reserved may have been, as far as it existed. A hub that has not ended knows.
        """
        self.base = self.taken = self.durable_head = self.asked_head = head
        self.reserved = self.asked_reserved = reserved
        if self.sent_upto < 0:
            self.sent_upto = min(reserved, tail)
        self.in_flight = 0
        self.states = bytearray()
        self.done = {position for position in (self.done or ()) if position > head} or None
        self.released = {p: False for p in sorted(released) if p > head and not self.is_done(p)} or None

    def halt(self) -> None:
        """The connection ended: nothing is in flight any more; `restore` begins again."""
        done = {self.base + 1 + index for index, state in enumerate(self.states) if state == DONE}
        done.update(position for position, is_complete in (self.released or {}).items() if is_complete)
        if done:
            self.done = done | (self.done or set())
        self.in_flight = 0
        self.states = bytearray()
        self.taken = self.base
        self.released = None
