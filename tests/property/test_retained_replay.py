"""Retained messages against a model: each subscription gets what was retained when it became active, and nothing older follows newer.

[MQTT-3.3.1-9] [MQTT-3.8.4-4]
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from iothub.engine.filters import topic_matches
from tests.support.in_process.retained_harness import Harness
from tests.support.night import by_day

TOPICS = (b"r/0", b"r/1", b"s/0")
FILTERS = (b"r/#", b"r/+", b"+/0", b"r/0", b"#")


class Subscribers(RuleBasedStateMachine):
    """One session that subscribes again and again while others publish; the store is as slow as it likes.

    `due`: what must still come with RETAIN 1, once for each SUBSCRIBE: for which Topic Filter, of which topic, the payload.
    """

    def __init__(self) -> None:
        super().__init__()
        self.harness = Harness()
        self.harness.bodies.is_held = True
        self.number = 0
        self.retained: dict[bytes, bytes] = {}
        self.newest: dict[bytes, int] = {}  # what the client has of each topic, or knows to be deleted
        self.due: list[tuple[bytes, bytes, bytes]] = []

    @rule(topic=st.sampled_from(TOPICS))
    def publish(self, topic: bytes) -> None:
        self.number += 1
        payload = b"%d" % self.number
        self.harness.ask_to_retain(topic, payload)
        self.retained[topic] = payload
        self._overtake(topic)

    @rule(topic=st.sampled_from(TOPICS))
    def delete(self, topic: bytes) -> None:
        self.harness.ask_to_retain(topic, b"")
        self.retained.pop(topic, None)
        self.number += 1
        self.newest[topic] = self.number
        self._overtake(topic)

    def _overtake(self, topic: bytes) -> None:
        """Whoever waits for an older message of the topic gets this one live."""
        self.due = [each for each in self.due if each[1] != topic]

    @rule(topic_filter=st.sampled_from(FILTERS))
    def subscribe(self, topic_filter: bytes) -> None:
        self.due += [
            (topic_filter, topic, payload)
            for topic, payload in self.retained.items()
            if topic_matches(topic_filter, topic)
        ]
        self.harness.subscribe(topic_filter)

    @rule(topic_filter=st.sampled_from(FILTERS))
    def unsubscribe(self, topic_filter: bytes) -> None:
        self.harness.unsubscribe(topic_filter)
        self.due = [each for each in self.due if each[0] != topic_filter]

    @rule(count=st.integers(1, 5))
    def commit(self, count: int) -> None:
        self.harness.bodies.commit(count)

    @rule()
    def answer_reads(self) -> None:
        """Those that wait; the next ones wait again."""
        self.harness.bodies.release()
        self.harness.bodies.is_held = True

    @rule()
    def settle(self) -> None:
        """Everything that is due has come, and no replay is left."""
        self.harness.bodies.commit()
        self.harness.bodies.release()
        self._take(seconds=1.0)
        self.harness.bodies.is_held = True

        assert self.due == []
        assert self.harness.bench.plane.replays.queues == {}

    @invariant()
    def nothing_older_follows(self) -> None:
        self._take(seconds=0.1)

    def _take(self, seconds: float) -> None:
        for topic, payload, is_retained in self.harness.received(seconds):
            if not payload:
                continue
            assert int(payload) >= self.newest.get(topic, 0)
            self.newest[topic] = int(payload)
            if is_retained:
                self._came(topic, payload)

    def _came(self, topic: bytes, payload: bytes) -> None:
        """One that was due is due no more; one that came before a newer one of its topic is fine, too."""
        for each in self.due:
            if each[1:] == (topic, payload):
                self.due.remove(each)
                return


TestSubscribers = Subscribers.TestCase
TestSubscribers.settings = settings(max_examples=by_day(75, 150), stateful_step_count=30, deadline=None)
