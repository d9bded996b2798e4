"""Queues in Redis: does the server store messages as durably as the hub needs?

Knows no key; writes nothing. Another check says whether Redis answers at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from iothub.base.errors import BackendError
from iothub.config.sections import Config
from iothub.doctor.findings import Check, Finding, State, of_probe, timed
from iothub.hub.stores.drivers import redis_queues

_NAME = "Redis queues"
_UNTIL_THEN = "until then the hub stores no messages there"
_KEPT = {
    "disk": "acknowledged messages are on disk",
    "memory": 'acknowledged messages are in memory only (queues.redis_durability = "memory")',
}


def check(settings: Config) -> Check:
    return Check(_NAME, lambda: _check(settings))


def _check(settings: Config) -> Iterator[Finding]:
    durability = settings.queues.redis_durability
    with closing(redis_queues(settings)) as queues:
        from iothub_services.redis.probe import probe

        found = probe(settings.redis)
        if not found.is_reached:
            yield of_probe(_NAME, found, beside=_UNTIL_THEN)
            return
        try:
            _, seconds = timed(queues.require_kept)
        except BackendError as error:
            yield Finding(_NAME, State.FAIL, error.fact, f"set it in redis.conf and with CONFIG SET; {_UNTIL_THEN}")
            return
    state = State.OK if durability == "disk" else State.WARN
    yield Finding(_NAME, state, _KEPT[durability], seconds=seconds)
