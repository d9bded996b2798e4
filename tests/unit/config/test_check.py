"""The files that a configuration names: every mistake is reported, together with those of the settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from iothub.base.errors import ConfigError
from iothub.config.check import load_checked
from iothub.testing.certificates import Authority


def mistakes(*flags: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_checked(flags=flags)
    return [str(caught.value), *caught.value.details]


def test_every_mistake_in_settings_and_files_is_named(tmp_path: Path) -> None:
    """A pair that does not fit, secrets that are not there, and a wrong value."""
    authority = Authority(tmp_path)
    one, other = authority.issue("one"), authority.issue("other")

    found = mistakes(
        "log.level=loud",
        "listeners.tls.port=0",
        f"listeners.tls.cert_file={one.cert_file}",
        f"listeners.tls.key_file={other.key_file}",
        "listeners.wss.port=0",
        f"listeners.wss.cert_file={tmp_path / 'no.pem'}",
        f"listeners.wss.key_file={tmp_path / 'no.key'}",
        f"auth.pepper_file={tmp_path / 'pepper'}",
        "redis.addresses=127.0.0.1:1",
        f"redis.password_file={tmp_path / 'password'}",
    )

    assert found == [
        "--set log.level=loud: log.level: expected one of debug, info, warning, error, got 'loud'",
        f"listeners.tls: cannot use certificate {one.cert_file} with key {other.key_file}: they do not match",
        f"listeners.wss.cert_file: {tmp_path / 'no.pem'}: No such file or directory",
        f"listeners.wss.key_file: {tmp_path / 'no.key'}: No such file or directory",
        f"auth.pepper_file: {tmp_path / 'pepper'}: No such file or directory",
        f"redis.password_file: {tmp_path / 'password'}: No such file or directory",
    ]


def test_setting_that_is_wrong_itself_leads_to_no_second_message() -> None:
    """Whether a listener is on is not known then."""
    assert len(mistakes("listeners.tcp.port=mqtt")) == 1
    assert len(mistakes("listeners.tcp.port=off", "listeners.tls.port=x")) == 1
