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


def test_every_missing_file_of_a_listener_is_named(tmp_path: Path) -> None:
    """Also beside a wrong setting of the same listener; a named one has some of them from its kind."""
    gone = [tmp_path / name for name in ("no.pem", "no.key", "no-ca.pem")]
    words = ("cert_file", "key_file", "client_ca_file")
    flags = [f"listeners.tls.{word}={file}" for word, file in zip(words, gone, strict=True)]

    found = mistakes("listeners.tls.port=0", "listeners.tls.min_tls=1.1", *flags)
    named = mistakes("listeners.tls.inner.port=0", *flags)

    assert found[0].startswith("--set listeners.tls.min_tls=1.1: listeners.tls.min_tls: expected one of ")
    assert found[1:] == [
        f"listeners.tls.{word}: {file}: No such file or directory" for word, file in zip(words, gone, strict=True)
    ]
    assert named == [
        f"listeners.tls.inner.{word}: {file}: No such file or directory" for word, file in zip(words, gone, strict=True)
    ]


def test_authorities_are_looked_at_beside_a_key_that_does_not_fit(tmp_path: Path) -> None:
    authority, text = Authority(tmp_path), tmp_path / "text"
    one, other = authority.issue("one"), authority.issue("other")
    text.write_text("no certificate")

    found = mistakes(
        "listeners.tls.port=0",
        f"listeners.tls.cert_file={one.cert_file}",
        f"listeners.tls.key_file={other.key_file}",
        f"listeners.tls.client_ca_file={text}",
    )

    assert found == [
        f"listeners.tls: cannot use certificate {one.cert_file} with key {other.key_file}: they do not match",
        f"listeners.tls.client_ca_file: {text} contains no certificate; expected a PEM file",
    ]


@pytest.mark.parametrize(
    ("wrong", "file", "flags"),
    [
        ("kafka.security_protocol=x", "kafka.ca_file", ["kafka.brokers=kafka-1:9092"]),
        ("redis.security=x", "redis.ca_file", ["redis.addresses=127.0.0.1:1"]),
        ("cluster.address=x", "cluster.ca_file", ["cluster.listen=127.0.0.1:4000"]),
    ],
)
def test_wrong_setting_hides_no_missing_file_of_its_section(
    wrong: str, file: str, flags: list[str], tmp_path: Path
) -> None:
    found = mistakes("listeners.tcp.port=0", wrong, f"{file}={tmp_path / 'gone'}", *flags)

    assert found[-1] == f"{file}: {tmp_path / 'gone'}: No such file or directory"


def test_file_whose_name_is_not_known_is_not_looked_for(tmp_path: Path) -> None:
    """Nor is what follows from it: whether the key fits."""
    one, settings = Authority(tmp_path).issue("one"), tmp_path / "iothub.toml"
    settings.write_text(f'[listeners.tls]\nport = 0\ncert_file = 3\nkey_file = "{one.key_file}"\n')

    with pytest.raises(ConfigError, match=r"line 3: listeners\.tls\.cert_file: expected") as caught:
        load_checked(file=settings)

    assert caught.value.details == ()


def test_setting_that_is_wrong_itself_leads_to_no_second_message() -> None:
    """Whether a listener is on is not known then."""
    assert len(mistakes("listeners.tcp.port=mqtt")) == 1
    assert len(mistakes("listeners.tcp.port=off", "listeners.tls.port=x")) == 1
