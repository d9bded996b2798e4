"""Settings of Kafka: what must be given together, and the files that they name."""

from __future__ import annotations

from pathlib import Path

import pytest

from iothub.base.errors import ConfigError
from iothub.base.units import Endpoint
from iothub.config.check import check_start
from iothub.config.loader import load
from iothub.config.sections import Config

CHOSEN = ("events.driver=kafka", "kafka.brokers=kafka-1:9092,[::1]:9093")


def loaded(*flags: str) -> Config:
    return load(file=None, environment={}, flags=flags).config


def test_brokers_are_a_list_of_addresses() -> None:
    assert loaded(*CHOSEN).kafka.brokers == (Endpoint("kafka-1", 9092), Endpoint("::1", 9093))


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("events.driver=kafka",), 'events.driver = "kafka" needs kafka.brokers, such as ["kafka-1:9092"]'),
        ((*CHOSEN, "kafka.security_protocol=SASL_SSL"), "needs kafka.sasl_username and kafka.sasl_password_file"),
        ((*CHOSEN, "kafka.cert_file=a.pem"), "kafka.cert_file and kafka.key_file must be set together"),
        (("events.driver=files",), "expected one of sqlite, kafka"),
        (("kafka.brokers=kafka-1",), "expected host:port"),
        (("kafka.brokers=kafka-1:9092", "kafka.cert_file=a.pem"), "must be set together"),  # for streams alone, too
        (("kafka.sasl_username=a\x07b",), "printable characters"),
    ],
)
def test_settings_that_do_not_fit_are_refused(flags: tuple[str, ...], expected: str) -> None:
    """With the setting that asks for the other one."""
    with pytest.raises(ConfigError) as caught:
        loaded(*flags)

    assert expected in str(caught.value)


def test_settings_of_a_driver_that_is_not_chosen_are_no_obstacle() -> None:
    assert loaded("kafka.security_protocol=SASL_SSL").events.driver == "sqlite"


def test_files_are_looked_at_before_the_start(tmp_path: Path) -> None:
    """A missing one is an error, a secret that others can read a warning."""
    password = tmp_path / "password"
    flags = (
        *CHOSEN,
        "kafka.security_protocol=SASL_PLAINTEXT",
        "kafka.sasl_username=hub",
        f"kafka.sasl_password_file={password}",
    )
    with pytest.raises(ConfigError, match=r"kafka\.sasl_password_file: .*No such file"):
        check_start(loaded(*flags))

    password.write_text("s3cret")
    password.chmod(0o644)
    assert check_start(loaded(*flags)) == [
        f"kafka.sasl_password_file: {password} can be read by others; run `chmod 600 {password}`"
    ]
    password.chmod(0o600)
    assert check_start(loaded(*flags)) == []
