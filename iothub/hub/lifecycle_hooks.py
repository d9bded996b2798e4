"""What plug-ins hear of the hub, of other hubs and of sessions: the hook `lifecycle`.

Knows no log: it is given the events on their way there. Without a plug-in for it nothing is looked up.
"""

from __future__ import annotations

from iothub import hooks
from iothub.base.clock import Clock
from iothub.hub.cluster.member_events import MemberEvent
from iothub.records.events import Event, Topic
from iothub_tenants.broker.brokers import Brokers


class LifecycleHooks:
    """On the reactor thread."""

    def __init__(self, plug_ins: hooks.Hooks, brokers: Brokers, clock: Clock) -> None:
        self._lifecycle = plug_ins.lifecycle
        self._brokers = brokers
        self._clock = clock

    def on_hub(self, name: str) -> None:
        """`hub.started`, `hub.draining`, `hub.resumed` or `hub.stopping`."""
        if self._lifecycle is not None:
            self._lifecycle(hooks.Happening(name, at=self._clock.wall()))

    def on_member(self, event: MemberEvent) -> None:
        """Another hub has come, or cannot be reached, or is gone."""
        if self._lifecycle is not None:
            at = self._clock.wall()
            self._lifecycle(
                hooks.Happening(event.name.value, reason=event.reason, at=at, node=event.node, hub=event.hub)
            )

    def on_event(self, event: Event) -> None:
        if self._lifecycle is None or event.type.topic is not Topic.SESSIONS:
            return
        broker = self._brokers.present(event.tenant_id)
        session = broker.plane.sessions.get(event.client_id) if broker is not None else None
        self._lifecycle(
            hooks.Happening(
                event.type.value,
                broker.record.name if broker is not None else "",
                session.device if session is not None else str(event.facts.get("device", "")),
                event.client_id,
                str(event.facts.get("reason", "")),
                event.at_ms / 1000,
            )
        )
