"""Positions, identifiers and what is in flight."""

from __future__ import annotations

from iothub.engine.window import DONE, WAIT_PUBACK, WAIT_PUBCOMP, WAIT_PUBREC, Window


def test_window_identifier_follows_from_the_position() -> None:
    """A session's first is 1; never 0, found again after it wrapped [MQTT-2.2.1-3] [MQTT-2.2.1-4] [MQTT-4.4.0-1]."""
    window = Window(10, False)
    assert (window.send(1), window.find(1), window.find(2)) == (1, 1, 0)
    window = Window(10, False)
    window.base = window.taken = window.durable_head = 65534

    assert [window.send(1) for _ in range(4)] == [65535, 1, 2, 3]
    assert [window.find(packet_id) for packet_id in (65535, 1, 2, 3)] == [65535, 65536, 65537, 65538]
    assert window.find(4) == 0
    assert window.find(65534) == 0


def test_window_base_moves_over_what_is_complete() -> None:
    """In any order of acknowledgements; skipped positions are complete."""
    window = Window(10, False)
    window.send(1)
    window.send(2)
    window.skip()
    window.send(1)
    assert [window.state(position) for position in (1, 2, 3, 4, 5)] == [
        WAIT_PUBACK,
        WAIT_PUBREC,
        DONE,
        WAIT_PUBACK,
        DONE,
    ]

    window.complete(4)
    assert (window.base, window.in_flight) == (0, 2)
    window.complete(1)
    assert (window.base, window.in_flight) == (1, 1)
    window.complete(2)

    assert (window.base, window.in_flight, window.durable_head) == (4, 0, 4)
    window.skip()
    assert window.base == 5


def test_window_of_a_queue_waits_for_the_durable_head() -> None:
    """Completion in memory moves nothing on disk."""
    window = Window(10, True)
    window.send(1)

    window.complete(1)

    assert (window.base, window.durable_head) == (1, 0)


def test_window_restore_knows_what_may_have_been_sent() -> None:
    """First claim of a hub: all that was reserved and existed; later claims: what this hub sent."""
    window = Window(10, True)

    window.restore(3, 10, 1027, (2, 5))
    assert (window.base, window.taken, window.sent_upto, window.reserved) == (3, 3, 10, 1027)
    assert window.is_released(5)
    assert not window.is_released(2)
    window.restore(10, 12, 1027, ())

    assert window.sent_upto == 10


def test_window_released_position_awaits_pubcomp_before_and_after_its_turn() -> None:
    """PUBREL goes out at once, its position is walked over later; PUBCOMP may come before that."""
    window = Window(10, True)
    window.restore(0, 3, 3, (1, 2))
    assert window.find(1) == 1
    assert window.state(1) == WAIT_PUBCOMP

    window.complete(1)
    window.take_released()
    window.take_released()
    assert (window.base, window.in_flight) == (1, 1)
    window.complete(2)

    assert (window.base, window.in_flight) == (2, 0)


def test_window_remembers_what_an_earlier_connection_completed_out_of_order() -> None:
    """PUBCOMP of position 2 while 1 is outstanding: after a reconnect neither PUBLISH nor PUBREL of it goes out again [MQTT-4.4.0-1]."""
    window = Window(10, True)
    window.restore(0, 2, 1024, ())
    for _ in range(2):
        window.send(2)
    window.set_state(2, WAIT_PUBCOMP)
    window.complete(2)

    window.halt()
    window.restore(0, 2, 1024, (2,))

    assert window.is_done(2)
    assert not window.is_released(2)


def test_window_forgets_completed_positions_that_the_durable_head_has_passed() -> None:
    """What is remembered is bounded by what the store still has."""
    window = Window(10, True)
    window.restore(0, 3, 1024, (3,))
    window.complete(3)
    window.halt()

    window.restore(3, 3, 1024, ())

    assert window.done is None
