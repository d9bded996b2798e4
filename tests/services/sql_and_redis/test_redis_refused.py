"""Real Redis servers that answer and let nobody in: doctor tells their words, and where to read on."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from iothub.base.units import Endpoint
from iothub.config.sections import Redis
from iothub.doctor import redis
from iothub.testing.certificates import Authority
from iothub_services.redis.calls import ADVICE
from tests.support.ports import free_port
from tests.support.waiting import until

HOST = "127.0.0.1"


@contextmanager
def server(port: int, *settings: str) -> Iterator[int]:
    process = subprocess.Popen(["redis-server", "--bind", HOST, "--save", "", *settings], stdout=subprocess.DEVNULL)
    try:
        until(lambda: accepts(port), "Redis listens")
        yield port
    finally:
        process.kill()
        process.wait()


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def advice(port: int, **keys: object) -> tuple[str, str]:
    settings = Redis(addresses=(Endpoint(HOST, port),), timeout_s=0.5, **keys)  # type: ignore[arg-type]
    (finding,) = redis.checks(settings)[0].run()
    return finding.text, finding.advice


@pytest.fixture
def with_password() -> Iterator[int]:
    port = free_port()
    with server(port, "--port", str(port), "--requirepass", "right"):
        yield port


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def with_tls(tmp_path: Path, authority: Authority) -> Iterator[int]:
    port, pair = free_port(), authority.issue("redis")
    files = (
        "--tls-cert-file",
        pair.cert_file,
        "--tls-key-file",
        pair.key_file,
        "--tls-ca-cert-file",
        authority.ca_file,
    )
    with server(port, "--port", "0", "--tls-port", str(port), "--dir", str(tmp_path), *files):
        yield port


def test_password_is_named(with_password: int, tmp_path: Path) -> None:
    """Missing and wrong; neither is told."""
    file = tmp_path / "password"
    file.write_text("wrong\n")

    missing, wrong = advice(with_password), advice(with_password, password_file=file)

    assert missing[0] == f"Redis at {HOST}:{with_password}: Authentication required"
    assert missing[1].startswith(str(ADVICE))
    assert "invalid username-password pair" in wrong[0]


def test_tls_is_named(with_tls: int, authority: Authority, tmp_path: Path) -> None:
    """Plain to a port of TLS, another authority."""
    (tmp_path / "other").mkdir()
    other = Path(Authority(tmp_path / "other").ca_file)

    assert "closed" in advice(with_tls)[0] or "reset" in advice(with_tls)[0]
    assert "CERTIFICATE_VERIFY_FAILED" in advice(with_tls, security="tls", ca_file=other)[0]
