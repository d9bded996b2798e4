"""The quota ledger: do the hubs of this installation share the limits now, and how many hubs are there?

Knows no limit and no count; writes nothing. Another check says whether Redis answers at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from iothub.base.errors import BackendError
from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub.doctor.findings import Check, Finding, State, timed
from iothub.hub.quota_ledger import ledger_keys
from iothub.hub.stores.drivers import require_extra
from iothub.hub.stores.installation import installation_of
from iothub_services.quota.shared import overview
from iothub_services.redis.calls import ADVICE, single

_NAME = "quota ledger"


def check(data_dir: DataDir, settings: Config) -> Check:
    return Check(_NAME, lambda: _check(data_dir, settings))


def _check(data_dir: DataDir, settings: Config) -> Iterator[Finding]:
    require_extra("quota.ledger", "redis", "redis", "hiredis")
    from iothub_services.redis import from_settings

    installation = installation_of(settings, data_dir)
    keys = ledger_keys(settings, lambda: installation.id)
    with closing(from_settings.blocking(settings.redis, "iothub-doctor")) as redis:
        answers, seconds = timed(lambda: redis.run_many(overview.questions(keys)))
    try:
        found = overview.read([single(answer) for answer in answers])
    except BackendError as error:
        yield Finding(
            _NAME, State.WARN, error.fact, f"{ADVICE}; until then every hub keeps its last share of the limits"
        )
        return
    yield _finding(found, seconds)


def _finding(found: overview.Overview, seconds: float) -> Finding:
    if found.initialising_ms:
        text = "initialising: the Redis ledger is empty; hubs report current usage; no new grants until done"
        return Finding(_NAME, State.WARN, text, f"wait {found.initialising_ms / 1000:.1f} s", seconds)
    if not found.hubs:
        text = "no hub has used it yet" if found.is_empty else "no hub holds a lease"
        return Finding(_NAME, State.OK, text, seconds=seconds)
    numbers = ", ".join(sorted((place.partition("-")[0] for place in found.places), key=int))
    return Finding(_NAME, State.OK, f"the limits are shared by the hubs with node.number {numbers}", seconds=seconds)
