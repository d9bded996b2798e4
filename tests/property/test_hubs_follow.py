"""Whatever hubs write of a session, and however the log is cut into pages, the picture of it at a hub that follows is what the fold makes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iothub.records import events
from iothub.records.events import Event, Subject
from iothub.records.state import SessionState, fold
from iothub_tenants.background.remote_sessions import RemoteSessions
from tests.support.in_process.control_harness import Harness, now, run
from tests.support.night import by_day

_NUMBERS = count()
HUBS = ("2.20", "3.30")
KINDS = ("created", "resumed", "connected", "disconnected", "subscribed", "unsubscribed", "will", "cleared", "expired")

said = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(1, 4), st.sampled_from(HUBS), st.sampled_from("ab"), st.booleans()),
    max_size=25,
)


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    """One for all examples: each has a client of its own."""
    made = Harness(tmp_path_factory.mktemp("harness"))
    yield made
    made.close()


def event_of(client_id: str, kind: str, epoch: int, hub: str, topic_filter: str, is_shared: bool) -> Event:
    subject, group = Subject(7, client_id, epoch << 24, 1000 + epoch), "g" if is_shared else None
    terms = {"protocol_version": 5, "session_expiry_s": 100 + epoch}
    made: dict[str, Any] = {
        "created": lambda: events.session_created(subject, device="dev1", queue_id=epoch, **terms),
        "resumed": lambda: events.session_resumed(subject, **terms),
        "connected": lambda: events.session_connected(subject, device="dev1", peer="p", keep_alive_s=0, **terms),
        "disconnected": lambda: events.session_disconnected(subject, reason="network", session_expiry_s=7 * epoch),
        "subscribed": lambda: events.session_subscribed(
            subject,
            topic_filter=topic_filter,
            group=group,
            qos=epoch % 3,
            no_local=False,
            retain_as_published=False,
            retain_handling=0,
            identifier=epoch,
        ),
        "unsubscribed": lambda: events.session_unsubscribed(subject, topic_filter=topic_filter, group=group),
        "will": lambda: events.will_set(
            subject, topic="w", payload=b"%d" % epoch, qos=1, retain=False, properties=b"", delay_s=epoch
        ),
        "cleared": lambda: events.will_cleared(subject),
        "expired": lambda: events.session_expired(subject),
    }
    event: Event = made[kind]()
    return event.written_by(hub)


@settings(max_examples=by_day(60, 120), deadline=None)
@given(said=said, cuts=st.sets(st.integers(0, 25)))
def test_picture_is_what_the_fold_makes(
    harness: Harness, said: list[tuple[str, int, str, str, bool]], cuts: set[int]
) -> None:
    """Who has the session, its epoch, terms, subscriptions and Will; or that there is none."""
    client_id = f"c{next(_NUMBERS)}"
    log = [event_of(client_id, *one) for one in said]
    state: SessionState | None = None
    for event in log:
        state = fold(state, event)
    registry = SimpleNamespace(tenant_by_id=lambda _id: harness.accounts.tenants["acme"])
    remote_sessions = RemoteSessions(harness.hub, cast("Any", registry), cast("Any", run), lambda: "1.10", 1)
    places = [0, *sorted(cut for cut in cuts if cut < len(log)), len(log)]
    for begin, end in pairwise(places):
        now(remote_sessions.apply_events(log[begin:end]))

    session = harness.acme.plane.sessions.get(client_id)
    if state is None or state.is_ended:
        assert session is None
        return
    assert session is not None
    control, place = session.control, session.control.place
    assert (session.epoch, session.queue_id) == (state.epoch, state.queue_id)
    assert (control.expiry_s, place.is_online) == (state.session_expiry_s, state.is_connected)
    assert str(place.holder) == state.hub.partition(".")[0]
    shown = {(group and group.decode(), name.decode()): one.qos for (group, name), one in session.subscriptions.items()}
    assert shown == {key: options.qos for key, options in state.subscriptions.items()}
    assert (control.will and control.will.payload) == (state.will and state.will.payload)
