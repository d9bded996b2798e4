"""Checks whether Redis answers and accepts the hub's login. Knows the connection and no key."""

from __future__ import annotations

from contextlib import closing

from iothub.config.sections import Redis
from iothub_services.probing import Probe, probe_by
from iothub_services.redis import from_settings
from iothub_services.redis.calls import ADVICE, command, single


def probe(settings: Redis) -> Probe:
    """Connect, PING, close. Raises ConfigError: no address is set, or the password cannot be read."""
    redis = from_settings.blocking(settings, "iothub-probe")

    def ping() -> str:
        single(redis.run_many([command("PING")])[0])
        return "answers"

    with closing(redis):
        return probe_by(ping, ADVICE)
