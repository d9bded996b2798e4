"""The limits object of a listener."""

from __future__ import annotations

from iothub.base.reasons import Reason
from iothub.net.descriptors import REFUSED_AT_ONCE, Descriptors
from iothub.net.gate import (
    ADDRESS_DENIED,
    NO_DESCRIPTORS,
    SHORT_OF_MEMORY,
    TOO_MANY,
    TOO_MANY_HANDSHAKES,
    VISITORS,
    Gate,
)
from iothub.net.listener_info import listener_info
from iothub.testing.clock import ManualClock


def gate(clock: ManualClock | None = None, **options: object) -> Gate:
    return Gate(listener_info("tcp", **options), clock or ManualClock())


def test_gate_counts_exactly() -> None:
    """One more than allowed is refused; a place that is freed can be taken."""
    limited = gate(max_connections=2)
    assert [limited.enter("10.0.0.1", has_handshake=False) for _ in range(3)] == [None, None, TOO_MANY]
    limited.leave(had_handshake=False)
    assert limited.enter("10.0.0.1", has_handshake=False) is None
    assert (limited.connections, limited.accepted, limited.refused[Reason.OVERLOAD]) == (2, 3, 1)


def test_gate_bounds_pending_handshakes() -> None:
    """A storm of handshakes is refused while those who are through stay."""
    limited = gate(max_handshakes=1)
    assert limited.enter("10.0.0.1", has_handshake=True) is None
    assert limited.enter("10.0.0.1", has_handshake=True) is TOO_MANY_HANDSHAKES
    limited.opened()
    assert limited.enter("10.0.0.1", has_handshake=True) is None
    limited.leave(had_handshake=True)
    limited.leave(had_handshake=False)
    assert (limited.connections, limited.handshakes) == (0, 0)


def test_gate_deny_wins_over_allow() -> None:
    """Addresses."""
    limited = gate(allow=("10.0.0.0/8",), deny=("10.1.0.0/16",))
    assert limited.enter("10.2.0.1", has_handshake=False) is None
    assert limited.enter("10.1.0.1", has_handshake=False) is ADDRESS_DENIED
    assert limited.enter("192.0.2.1", has_handshake=False) is ADDRESS_DENIED


def test_gate_behind_a_proxy_admits_only_the_proxy() -> None:
    """The rules for clients are for the announced address; the socket's peer has to be a trusted proxy."""
    limited = gate(proxy_trusted=("127.0.0.1",), deny=("127.0.0.0/8",))
    assert limited.enter("127.0.0.1", has_handshake=True) is None
    assert limited.enter("127.0.0.2", has_handshake=True) is ADDRESS_DENIED
    assert not limited.may_come("127.0.0.9")


def test_gate_accept_rate_is_a_bucket_of_one_second() -> None:
    """Ten a second: ten at once, then one each 100 ms."""
    clock = ManualClock()
    limited = gate(clock, accept_rate_per_s=10.0)
    assert limited.allowance() == 10
    for _ in range(10):
        limited.enter("10.0.0.1", has_handshake=False)
    assert limited.allowance() == 0
    clock.advance(0.11)
    assert limited.allowance() == 1
    clock.advance(60)
    assert limited.allowance() == 10
    assert gate().allowance() == 64


def test_narrow_gate_has_a_few_places_for_clients_that_are_to_hear_no() -> None:
    """An overloaded hub: who is in stays, a few at a time may ask, and a flood is closed as it comes."""
    narrow = gate()
    assert narrow.enter("10.0.0.1", has_handshake=False) is None
    narrow.set_narrow(is_narrow=True)
    assert [narrow.enter("10.0.0.1", has_handshake=False) for _ in range(VISITORS)] == [None] * VISITORS
    narrow.set_narrow(is_narrow=True)
    assert narrow.enter("10.0.0.1", has_handshake=False) is SHORT_OF_MEMORY
    assert (narrow.connections, narrow.refused[Reason.OVERLOAD]) == (1 + VISITORS, 1)

    narrow.leave(had_handshake=False)
    assert narrow.enter("10.0.0.1", has_handshake=False) is None
    narrow.set_narrow(is_narrow=False)
    assert narrow.enter("10.0.0.1", has_handshake=False) is None


def test_gate_takes_other_rules_and_limits_while_clients_are_in() -> None:
    """Who is in stays; whoever comes meets the new ones. A gate that is narrow stays so."""
    limited = gate()
    assert limited.enter("10.0.0.1", has_handshake=False) is None
    limited.apply(listener_info("tcp", max_connections=1, deny=("10.0.0.2",)))

    assert limited.enter("10.0.0.2", has_handshake=False) is ADDRESS_DENIED
    assert limited.enter("10.0.0.3", has_handshake=False) is TOO_MANY
    limited.set_narrow(is_narrow=True)
    limited.apply(listener_info("tcp", max_connections=10_000))

    entered = [limited.enter("10.0.0.3", has_handshake=False) for _ in range(VISITORS + 1)]
    assert entered[-2:] == [None, SHORT_OF_MEMORY]


def test_gate_that_gets_a_rate_begins_with_a_full_bucket() -> None:
    """Clients that came while there was none are not held against it; the same rate again fills nothing."""
    limited = gate(clock := ManualClock())
    for _ in range(1000):
        limited.enter("10.0.0.1", has_handshake=False)
    clock.advance(1.0)

    limited.apply(listener_info("tcp", accept_rate_per_s=10.0))
    assert limited.allowance() == 10
    for _ in range(10):
        limited.enter("10.0.0.1", has_handshake=False)
    limited.apply(listener_info("tcp", accept_rate_per_s=10.0))

    assert limited.allowance() == 0


def test_gates_share_the_descriptors_of_the_process() -> None:
    """16 of 18 are kept back, so two clients fit, at whichever listener; a refused one does not keep a place."""
    descriptors = Descriptors(18, lambda: 0)
    one, two = (Gate(listener_info("tcp"), ManualClock(), descriptors) for _ in range(2))

    assert one.enter("10.0.0.1", has_handshake=False) is None
    assert two.enter("10.0.0.1", has_handshake=False) is None
    assert two.enter("10.0.0.1", has_handshake=False) is NO_DESCRIPTORS
    assert (two.refused[Reason.FILE_DESCRIPTORS], descriptors.clients, descriptors.refused) == (1, 2, 1)

    one.leave(had_handshake=False)
    assert two.enter("10.0.0.1", has_handshake=False) is None


def test_gate_without_descriptors_accepts_a_few_at_a_time() -> None:
    """Each of them needs a descriptor until it is closed; nobody is left in the kernel's queue."""
    full = Gate(listener_info("tcp"), ManualClock(), Descriptors(16, lambda: 0))

    assert full.allowance() == REFUSED_AT_ONCE
