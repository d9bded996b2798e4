"""A hub for foreign clients. What a story needs and the machine lacks is a failure, unless the run said what it leaves out."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.hubs.hub import Hub
from tests.support.ports import free_port

HERE = Path(__file__).parent
NEEDS = {
    "test_mosquitto.py": "mosquitto_sub",
    "test_named_listeners.py": "mosquitto_sub",
    "test_make_run.py": "mosquitto_sub",
    "test_dist.py": "mosquitto_sub",
    "test_mqtt_js.py": "node",
}
IS_LEFT_OUT = os.environ.get("IOTHUB_TESTS_LEFT_OUT") == "1"
# ops/test.sh names what it leaves out; nothing is left out silently, and nothing at all in CI.
collect_ignore = [name for name, program in NEEDS.items() if IS_LEFT_OUT and shutil.which(program) is None]


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """Tenant `home` with devices sensor, console and light; the listeners tcp, tls and ws."""
    running = Hub(
        tmp_path_factory.mktemp("scenarios") / "hub",
        ports={name: free_port() for name in ("tcp", "tls", "ws")},
        is_whole=True,
    )
    running.init()
    running.run("cert", "self-signed", str(running.data_dir))
    running.settings["listeners.tls.cert_file"] = str(running.data_dir / "cert.pem")
    running.settings["listeners.tls.key_file"] = str(running.data_dir / "key.pem")
    running.tenant("home", "sensor", "console", "light")
    running.start()
    yield running
    running.finish()


@pytest.fixture
def program() -> Callable[[str], str]:
    """The path of a program that a story needs."""

    def find(name: str) -> str:
        found = shutil.which(name)
        assert found, f"{name} is not installed; `make test` installs it, or says that its stories are left out"
        return found

    return find
