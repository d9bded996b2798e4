"""Makes this package's objects from the section `[redis]`.

Knows no object of a running hub.
"""

from __future__ import annotations

from collections.abc import Callable

from iothub.base.clock import Clock, SystemClock
from iothub.base.errors import ConfigError
from iothub.base.units import Endpoint
from iothub.config.sections import Redis
from iothub_services.redis.blocking import BlockingRedis
from iothub_services.redis.client import Meter, Reactor, RedisClient
from iothub_services.redis.link import Link
from iothub_services.redis.places import Places
from iothub_services.redis.wire import WireOptions

_CLOCK = SystemClock()
_PASSWORD_BYTES = 4096


def scope(settings: Redis, installation: str) -> str:
    """Return what every key of an installation begins with: several may share a server."""
    return f"{settings.prefix}:{installation}:"


def client(
    settings: Redis,
    reactor: Reactor,
    meter: Meter | None = None,
    on_state: Callable[[str], None] | None = None,
    client_name: str = "iothub",
) -> RedisClient:
    """Return the client of a running hub, not started yet. Raises ConfigError."""
    return RedisClient(link(settings, client_name), reactor, meter=meter, on_state=on_state)


def blocking(settings: Redis, client_name: str = "iothub", clock: Clock = _CLOCK) -> BlockingRedis:
    """Return a caller for a thread of a driver, or for a tool: it has a connection of its own. Raises ConfigError."""
    return BlockingRedis(link(settings, client_name), clock)


def link(settings: Redis, client_name: str = "iothub") -> Link:
    """Raises ConfigError: no address is set, or the password cannot be read."""
    places = Places(addresses(settings), wire_options(settings, client_name), settings.sentinel_name)
    return Link(places.connect, _CLOCK, settings.timeout_s)


def addresses(settings: Redis) -> tuple[Endpoint, ...]:
    """Return where Redis, or its Sentinels, listen. Raises ConfigError when no address is set."""
    if not settings.addresses:
        raise ConfigError('no Redis is configured: set redis.addresses, such as ["127.0.0.1:6379"]')
    return settings.addresses


def wire_options(settings: Redis, client_name: str = "iothub") -> WireOptions:
    """Raises ConfigError: the password cannot be read."""
    return WireOptions(
        database=settings.database,
        username=settings.username,
        password=_password(settings),
        timeout_s=settings.timeout_s,
        is_tls=settings.security == "tls",
        ca_file=settings.ca_file,
        cert_file=settings.cert_file,
        key_file=settings.key_file,
        client_name=client_name,
    )


def _password(settings: Redis) -> str:
    file = settings.password_file
    if file is None:
        return ""
    try:
        with file.open(encoding="utf-8") as opened:
            password = opened.read(_PASSWORD_BYTES).strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "expected a line of text"
        raise ConfigError(f"redis.password_file: {file}: {why}") from None
    if not password:
        raise ConfigError(f"redis.password_file: {file} is empty; expected the password")
    return password
