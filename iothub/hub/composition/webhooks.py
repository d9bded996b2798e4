"""What delivers to webhooks, and what the operator's tenant gets of the whole hub: made below everything that tells of events."""

from __future__ import annotations

from iothub.hub.composition.stores import on_thread_alarm
from iothub.hub.monitoring.broker_figures import AllFigures, BrokerFigures
from iothub.hub.parts import Monitoring, Process, Stores
from iothub.hub.webhooks import Webhooks, delivery_of
from iothub_services.sqlite.database import open_database
from iothub_services.webhooks.deliverer import Deliverer
from iothub_services.webhooks.outbox import SCHEMA, Outbox


def make_broker_figures(process: Process, monitoring: Monitoring, figures: AllFigures) -> BrokerFigures | None:
    """Make what the operator's tenant gets below `$SYS/broker`; None: there is no such tenant."""
    if not process.settings.tenancy.operator:
        return None
    return BrokerFigures(figures, lambda: monitoring.watch.resident_bytes, process.version, process.clock)


def make_webhooks(process: Process, stores: Stores, monitoring: Monitoring) -> Webhooks:
    """Make what delivers events to webhooks. No thread runs before there is one."""
    data_dir, clock, call = process.data_dir, process.clock, process.reactor.callFromThread

    def open_outbox() -> Outbox:
        return Outbox(open_database(data_dir.webhooks, SCHEMA, clock, on_thread_alarm(process, monitoring)))

    deliverer = Deliverer(
        open_outbox,
        clock,
        delivery_of(process.settings.webhooks),
        f"iothub/{process.version}",
        lambda target, result, count: call(made.on_lost, target, result, count),
    )
    made = Webhooks(
        deliverer,
        stores.accounts,
        process.threads.run,
        monitoring.alarms,
        clock,
        process.settings.node.number,
        has_left=data_dir.webhooks.exists,
    )
    return made
