"""The section `[redis]`: what it says reaches the connection, and what cannot work is refused with its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from iothub.base.errors import ConfigError
from iothub.config.check import check_start
from iothub.config.loader import load
from iothub.config.sections import Config, Redis
from iothub_services.redis import from_settings

HERE = "redis.addresses=one:6379,[::1]:6380"


def loaded(*flags: str) -> Config:
    return load(file=None, environment={}, flags=flags).config


def settings(*flags: str) -> Redis:
    return loaded(HERE, *flags).redis


def test_connection_has_what_is_set(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("hidden\n")
    given = settings(
        "redis.database=3",
        "redis.username=hub",
        f"redis.password_file={password}",
        "redis.timeout=250ms",
        "redis.security=tls",
    )

    options = from_settings.wire_options(given, "iothub-hub-1")

    assert [str(each) for each in from_settings.addresses(given)] == ["one:6379", "[::1]:6380"]
    assert (options.database, options.username, options.password) == (3, "hub", "hidden")
    assert (options.timeout_s, options.is_tls, options.client_name) == (0.25, True, "iothub-hub-1")


def test_keys_begin_with_prefix_and_installation() -> None:
    """Several installations may share a server."""
    assert from_settings.scope(settings("redis.prefix=north"), "ab12") == "north:ab12:"


def test_without_an_address_it_is_said_what_to_set() -> None:
    with pytest.raises(ConfigError, match=r'set redis\.addresses, such as \["127\.0\.0\.1:6379"\]'):
        from_settings.blocking(loaded().redis)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("redis.cert_file=a.pem", "redis.security=tls"), r"redis\.cert_file and redis\.key_file must be set together"),
        (("redis.username=hub",), r"redis\.username needs redis\.password_file"),
        (("redis.ca_file=a.pem",), r'are for redis\.security = "tls"'),
        (("redis.security=ssl",), "expected one of plain, tls"),
    ],
    ids=["half-certificate", "no-password", "ca-without-tls", "security"],
)
def test_settings_that_cannot_work_together_are_refused(flags: tuple[str, ...], message: str) -> None:
    """At the start, with the key."""
    with pytest.raises(ConfigError, match=message):
        settings(*flags)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), r'auth\.shared_cache = "redis" needs redis\.addresses'),
        ((HERE, "auth.cache=0s"), r"needs auth\.cache of 2s or more"),
    ],
    ids=["nowhere", "no-memory"],
)
def test_shared_cache_that_cannot_work_is_refused(flags: tuple[str, ...], message: str) -> None:
    """An answer is used for `auth.cache` after the last look at the changes, and looks are up to a second apart."""
    with pytest.raises(ConfigError, match=message):
        loaded("auth.shared_cache=redis", *flags)


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff\xfe"], ids=["missing", "empty", "blank", "not-text"])
def test_password_that_cannot_be_read_is_refused(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(ConfigError, match=r"redis\.password_file: .*password"):
        from_settings.wire_options(settings(f"redis.password_file={file}"))


def test_files_are_looked_at_before_the_start(tmp_path: Path) -> None:
    """A missing one is refused, one that others can read is warned of."""
    with pytest.raises(ConfigError, match=r"redis\.password_file: .*No such file"):
        check_start(loaded(HERE, f"redis.password_file={tmp_path / 'gone'}"))
    password = tmp_path / "password"
    password.write_text("hidden")
    password.chmod(0o644)

    warnings = check_start(loaded(HERE, f"redis.password_file={password}"))

    assert warnings == [f"redis.password_file: {password} can be read by others; run `chmod 600 {password}`"]
