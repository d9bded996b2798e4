"""Five thousand devices at a hub with a cold memory and a warm Redis: the long form of `tests/services/test_shared_cache.py`."""

from __future__ import annotations

from pathlib import Path

from iothub_services.auth.authenticator import Authenticated
from ops.services.house import Services
from tests.support.redis_cache import accounts_with, hubs, settings_of

DEVICES = 5_000


def test_storm_of_5000_asks_no_sql(services: Services, tmp_path: Path) -> None:
    """None for a device, none for the tenant; the hub that filled Redis asked once for each."""
    store = accounts_with(tmp_path / "accounts.db", DEVICES)
    names = [f"dev{number}" for number in range(DEVICES)]
    with hubs(store, settings_of(services.ports.redis, timeout_s=5.0)) as (warm, cold):
        for start in range(0, DEVICES, 500):  # the accounts answer so many at once
            warm.connect(*names[start : start + 500])

        answers = cold.connect(*names)

        assert sum(isinstance(answer, Authenticated) for answer in answers) == DEVICES
        assert dict(cold.accounts.asked) == {}
        assert warm.accounts.asked["device"] == DEVICES
    store.close()
