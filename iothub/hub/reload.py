"""A reload: the configuration is read again as a whole, and what may change while the hub runs is applied, all of it or nothing.

SIGHUP and `iothub config reload` ask for it. Knows which part takes which settings, and no part's inside: each gets by `apply` what its constructor
got, made by the same functions (`iothub.hub.from_settings`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, DeferredLock

from iothub.base import log
from iothub.base.errors import IotHubError, UnavailableError
from iothub.config.changes import Changes, changes_between
from iothub.config.check import Checked
from iothub.config.sections import Config, Reload
from iothub.hub.from_settings import (
    auth_settings,
    certificate_files,
    configure_log,
    connection_lines,
    listener_infos,
    plane_limits,
)
from iothub.hub.parts import Parts
from iothub.hub.webhooks import delivery_of
from iothub.hub.workers.service_manager import ServiceManager
from iothub.records.admin_commands import Json, Reply
from iothub_services.metrics.alarms import AlarmName

Read = Callable[[], Checked]
"""Read all sources of this process again: file, environment, `--set`. Blocks. Raises ConfigError, UnavailableError."""


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What a reload did. `certificates`: the listeners whose certificates were read again; `cluster`: that of the links, too."""

    changes: Changes
    warnings: list[str]
    certificates: list[str]


def prepare(parts: Parts, new: Config) -> list[Callable[[], None]]:
    """Return what puts new settings to use, part by part; none of it can fail.

    Raises:
        ConfigError: a certificate cannot be used; nothing has changed.
    """
    control, monitoring = parts.control, parts.monitoring
    return [
        *(() if control.links is None else (control.links.prepare(),)),
        parts.sockets.listeners.prepare(listener_infos(new)),
        partial(configure_log, new.log),
        partial(monitoring.connection_log.apply, connection_lines(new.log)),
        partial(control.plane.apply, plane_limits(new)),
        partial(control.hub.authenticator.apply, auth_settings(new)),
        partial(control.hub.apply, new),
        partial(control.event_topics.apply, new.mqtt.events_rate),
        partial(control.webhooks.deliverer.apply, delivery_of(new.webhooks)),
        partial(
            monitoring.watch.apply,
            new.alarms,
            new.overload.memory_limit,
            certificate_files(new, parts.process.data_dir),
        ),
        partial(parts.tasks.accounts.jobs.watch.apply, new),
        partial(parts.sockets.health.tenants.apply, new.metrics.tenant_series_max),
    ]


class Reloader:
    """Does one reload at a time; on the reactor thread, but for reading.

    Invariants: a configuration with a mistake changes nothing; `settings` is what every part has.
    """

    def __init__(self, parts: Parts, read: Read, manager: ServiceManager) -> None:
        self.settings = parts.process.settings
        self._parts = parts
        self._read = read
        self._manager = manager
        self._lock = DeferredLock()
        self._log = log.get(__name__)

    def signalled(self) -> None:
        """SIGHUP. Log, metric and alarm say what came of it."""
        Deferred.fromCoroutine(self.reload()).addErrback(self._failed)

    async def answer(self, reply: Reply) -> Json:
        """Reload for `iothub config reload`. Raises IotHubError: refused."""
        done = await self.reload()
        await reply.rows(
            [{"name": change.name, "value": change.value, "reload": change.reload.value} for change in done.changes.all]
        )
        return {"warnings": done.warnings, "certificates": done.certificates}

    async def reload(self) -> Reloaded:
        """Read, check and apply. Raises IotHubError: the configuration was refused, or the hub is not ready."""
        await self._lock.acquire()
        try:
            self._require_ready()
            self._manager.reloading()
            outcome = "reload refused: the settings are as before, the log says why"
            try:
                done = await self._reload()
                outcome = "configuration reloaded"
            finally:
                self._manager.ready(outcome)
            return done
        finally:
            self._lock.release()

    async def _reload(self) -> Reloaded:
        try:
            checked = await self._parts.process.threads.run("housekeeping.settings", self._read)
            changes = changes_between(self.settings, checked.loaded.config)
            uses = prepare(self._parts, changes.config)
        except IotHubError as error:
            self._refused(error)
            raise
        self._require_ready()  # still: it may be stopping by now
        for use in uses:
            use()
        self.settings = changes.config
        certificates, links = self._parts.sockets.listeners.with_certificates(), self._parts.control.links
        if links is not None and links.has_certificate:
            certificates.append("cluster")
        done = Reloaded(changes, checked.warnings, certificates)
        self._applied(done)
        return done

    def _require_ready(self) -> None:
        if not self._parts.process.phase.is_ready:
            self._log.warning("reload ignored: the hub is not ready")
            raise UnavailableError("the hub is not ready; reload again when it is, see `iothub status`")

    def _refused(self, error: IotHubError) -> None:
        mistakes, monitoring = [str(error), *error.details], self._parts.monitoring
        for mistake in mistakes:
            self._log.error("configuration refused; the hub keeps its settings", mistake=mistake)
        more = f" (and {len(mistakes) - 1} more)" if len(mistakes) > 1 else ""
        monitoring.alarms.raise_(AlarmName.CONFIG_REFUSED, detail=f"{mistakes[0]}{more}", is_newest=True)
        monitoring.watch.look_at_certificates()
        monitoring.telemetry.reloaded(self._parts.process.clock.wall(), is_successful=False)

    def _applied(self, done: Reloaded) -> None:
        monitoring, changes = self._parts.monitoring, done.changes
        monitoring.alarms.clear(AlarmName.CONFIG_REFUSED)
        monitoring.telemetry.reloaded(self._parts.process.clock.wall(), is_successful=True)
        self._parts.process.data_dir.note_reload()
        for warning in done.warnings:
            self._log.warning("configuration warning", warning=warning)
        self._log.info("configuration reloaded", applied=changes.names(Reload.NOW))
        if done.certificates:
            self._log.info("certificates read again; new handshakes use them", certificates=done.certificates)
        if waiting := changes.names(Reload.RESTART):
            self._log.warning("changed settings need a restart", settings=waiting)

    def _failed(self, failure: Any) -> None:
        error = failure.value
        if not isinstance(error, IotHubError):  # which `reload` has reported
            self._log.error("defect in a reload", exc_info=error)
