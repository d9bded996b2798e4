"""SIGHUP: the certificates are read again. One that cannot be used changes nothing but the alarms.

Knows no other setting: those are read at the start.
"""

from __future__ import annotations

from iothub.base import log as logging
from iothub.base.errors import ConfigError
from iothub.hub.parts import Parts
from iothub_services.metrics.alarms import AlarmName

log = logging.get(__name__)

_RELOAD = "reload"  # subject of the alarm about certificates that could not be reloaded


def reload(parts: Parts) -> None:
    """Do it, once the hub is ready. On the reactor thread."""
    monitoring, wall = parts.monitoring, parts.process.clock.wall
    if not parts.process.phase.is_ready:
        return
    try:
        parts.sockets.listeners.reload()
    except ConfigError as error:
        alarms = monitoring.alarms
        alarms.clear(AlarmName.CERTIFICATE_BAD, subject=_RELOAD)  # another text than last time's, perhaps
        alarms.raise_(AlarmName.CERTIFICATE_BAD, subject=_RELOAD, detail=str(error))
        monitoring.telemetry.reloaded(wall(), is_successful=False)
        return
    monitoring.alarms.clear(AlarmName.CERTIFICATE_BAD, subject=_RELOAD)
    monitoring.watch.look_at_certificates()
    monitoring.telemetry.reloaded(wall(), is_successful=True)
    log.info("certificates were read again; new handshakes use them")
