"""What a hub does regularly: its periodic tasks, and what follows the accounts' changes and deletes tenants among them.

Knows no interval: `iothub.hub.periodic_tasks` has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from iothub.hub.account_events import AccountEvents
from iothub.hub.body_sweep import BodySweep
from iothub.hub.composition.cluster import make_account_hints
from iothub.hub.composition.foundation import Foundation
from iothub.hub.late import LateBound
from iothub.hub.parts import Control, Writers
from iothub.hub.periodic_tasks import (
    TAILS,
    AccountChanges,
    ForgottenDevices,
    Housekeeping,
    JobHistory,
    MachineCheck,
    PeriodicTasks,
    QueueTails,
    RetainedExpiry,
    StatisticsTrim,
)
from iothub.hub.queue_expiry import QueueExpiry
from iothub.hub.stores.choices import queue_drivers
from iothub.hub.tenant_deletion import TenantDeletion, TenantPlaces
from iothub.jobs.watch import JobWatch
from iothub.net.listeners import Listeners
from iothub_services.metrics.disk_room import DiskRoom
from iothub_tenants.accounts.changes import Change
from iothub_tenants.background.apply_changes import AccountChangeApplier
from iothub_tenants.background.device_removal import DeviceRemoval
from iothub_tenants.background.following import AccountFollower, OnChanges
from iothub_tenants.background.tasks import TaskRunner


def make_tasks(
    foundation: Foundation,
    writers: Writers,
    control: Control,
    listeners: Listeners,
    jobs: JobWatch,
) -> PeriodicTasks:
    """Make all of them; none runs before the hub starts."""
    process, monitoring, stores = foundation.process, foundation.monitoring, foundation.stores
    settings, clock, run, brokers = process.settings, process.clock, process.threads.run, foundation.brokers
    accounts, shared, hub = stores.accounts, stores.shared_records, control.hub
    history = JobHistory(jobs, accounts, run)
    look: LateBound[AccountFollower] = LateBound("what reads the changes of the accounts")
    announce = make_account_hints(foundation, lambda: look().follow_changes())
    following = look.bind(_following(foundation, control, announce))
    runner = TaskRunner(process.reactor.callLater)
    if foundation.links is not None:
        foundation.queued().watch(partial(runner.hurry, TAILS))
    return PeriodicTasks(
        settings=settings,
        runner=runner,
        run=run,
        accounts=AccountChanges(following, control.streaming, history, monitoring.alarms, shared),
        sessions=hub.sessions,
        connect_timeouts=control.control_plane.connect_timeouts,
        tails=QueueTails(writers.queues, brokers, control.plane, foundation.on_lost()),
        retained=RetainedExpiry(writers.retained, brokers, clock),
        usage=stores.usage,
        expiry=QueueExpiry(writers.queues, brokers, control.plane, clock),
        streaming=control.streaming,
        deletion=_deletion(foundation, writers, control),
        metering=control.metering,
        sys_topics=control.sys_topics,
        broker_figures=foundation.broker_figures,
        event_topics=control.event_topics,
        webhooks=control.webhooks,
        machine=MachineCheck(
            process.data_dir, monitoring.alarms, monitoring.watch, process.descriptors, shared, listeners
        ),
        room=_room(foundation, control),
        statistics=StatisticsTrim(settings, accounts, writers.journal, run, clock),
        sweep=_sweep(foundation),
        traces=foundation.traces(),
        housekeeping=Housekeeping(brokers, accounts, run),
    )


def _following(foundation: Foundation, control: Control, announce: OnChanges) -> AccountFollower:
    process, stores, questions = foundation.process, foundation.stores, foundation.questions
    hub, run, streaming = control.hub, process.threads.run, control.streaming

    links, node = foundation.links, process.settings.node.number
    account_events = AccountEvents(
        control.event_topics.on_account,
        is_first=lambda: links is None or links.events.is_first(node),
        clock=process.clock,
        on_lost=control.event_topics.account_events_lost,
    )
    if links is not None:
        links.events.watch(lambda _event: account_events.on_view())

    def on_changes(changes: Sequence[Change]) -> None:
        streaming.on_changes(changes)
        control.webhooks.on_changes(changes)
        account_events.on_changes(changes)
        announce(changes)

    forgotten = ForgottenDevices(foundation.registry, run, stores.usage, hub.authenticator)
    return AccountFollower(
        stores.accounts,
        run,
        process.data_dir,
        process.reactor.callLater,
        DeviceRemoval(hub, forgotten.forget),
        AccountChangeApplier(hub, control.queue_bounds, questions.device_limits, questions.tenants_on_plan),
        on_changes=on_changes,
    )


def _deletion(foundation: Foundation, writers: Writers, control: Control) -> TenantDeletion:
    stores, hub = foundation.stores, control.hub
    places = TenantPlaces(
        accounts=stores.accounts,
        authenticator=hub.authenticator,
        brokers=foundation.brokers,
        plane=control.plane,
        sessions=hub.sessions,
        queue_admin=writers.queues,
        retained_admin=writers.retained,
        usage=stores.usage,
        journal_thread=writers.journal_thread,
    )
    monitoring = foundation.monitoring

    def forget(tenant_id: int) -> None:
        monitoring.telemetry.forget_tenant(tenant_id)
        monitoring.connection_log.rejected.forget_tenant(tenant_id)
        foundation.traces().forget_tenant(tenant_id)

    return TenantDeletion(places, foundation.process.threads.run, forget, control.streaming.delete_topics)


def _room(foundation: Foundation, control: Control) -> DiskRoom | None:
    """Queues on servers leave nothing on this disk."""
    process, drivers = foundation.process, foundation.stores.drivers
    if "sqlite" not in queue_drivers(process.settings, process.data_dir):
        return None
    return DiskRoom(
        process.data_dir.path,
        control.plane.turn.note_disk,
        lambda: drivers.journal_figures().reusable_bytes,
        foundation.monitoring.alarms,
    )


def _sweep(foundation: Foundation) -> BodySweep | None:
    process, registry = foundation.process, foundation.monitoring.telemetry.registry
    hbase = process.settings.hbase
    if not hbase.sweep_interval_s or "hbase" not in queue_drivers(process.settings, process.data_dir):
        return None
    return BodySweep(hbase, process.threads.run, registry, process.clock)
