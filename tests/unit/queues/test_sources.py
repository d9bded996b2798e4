"""Sources: which publishes keep their order, and when whoever sent them begins anew."""

from __future__ import annotations

import pytest

from iothub.engine.message import Message
from iothub.engine.outbox import StoredPublish
from iothub.engine.state import AckSlot, TenantPlane
from iothub_services.queues.sources import Sources

TENANT = TenantPlane(7, "acme")


class Link:
    """As much of a connection as sources look at."""

    def __init__(self, version: int = 4) -> None:
        self.version = version


def publish(link: Link | None, *, retain: bool = False, qos: int = 1) -> StoredPublish:
    message = Message(b"a", b"", qos, retain, b"", 0.0, bytes(16), None, "pub")
    item = StoredPublish(TENANT, message, [], retain)
    item.connection = link  # type: ignore[assignment]
    item.slot = AckSlot(1, qos) if qos else None
    return item


def test_publishes_of_one_connection_have_one_source() -> None:
    sources, link = Sources(), Link()

    assert sources.enter(publish(link)) is sources.enter(publish(link))
    assert sources.enter(publish(Link())) is not sources.enter(publish(link))


@pytest.mark.parametrize(("link", "qos"), [(None, 1), (Link(), 0)])
def test_what_nobody_repeats_has_no_source(link: Link | None, qos: int) -> None:
    """The hub's own, and QoS 0: nothing can overtake it."""
    sources = Sources()
    item = publish(link, qos=qos)
    sources.leave(item, sources.enter(item), True)

    assert len(sources) == 0


@pytest.mark.parametrize(("version", "retain", "may_skip"), [(4, False, False), (5, False, True), (5, True, False)])
def test_only_5_0_is_told_of_each_refusal(version: int, retain: bool, may_skip: bool) -> None:
    """With RETAIN the other half may be written, and the connection closed [MQTT-4.6.0-5]."""
    source = Sources().enter(publish(Link(version), retain=retain))

    assert source is not None
    assert source.may_skip is may_skip


def test_source_is_forgotten_with_its_last_answer() -> None:
    sources, item = Sources(), publish(Link())
    source = sources.enter(item)
    sources.enter(item)
    sources.leave(item, source, False)
    assert len(sources) == 1

    sources.leave(item, source, True)

    assert len(sources) == 0


def test_connection_that_was_told_of_a_failure_begins_anew() -> None:
    """A success before the failure changes nothing: the thread gives up what is behind until the failure has been reported."""
    sources, item = Sources(), publish(Link(5))
    source = sources.enter(item)
    assert source is not None
    for _ in range(2):
        sources.enter(item)
    source.is_cut = True

    sources.leave(item, source, False)
    assert sources.enter(item) is source
    sources.leave(item, source, True)

    fresh = sources.enter(item)
    assert fresh is not source
    sources.leave(item, source, True)
    sources.leave(item, source, True)
    assert sources.enter(item) is fresh
