"""Hubs whose accounts are on a SQL server; everything else is in files of their own.

Knows no fault: the tests say what is done to the server.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.hubs.hub import Hub
from tests.support.ports import free_port


def sql_hubs(directory: Path, url: str, count: int = 1) -> list[Hub]:
    """Hubs, not started, on the same accounts: tenant acme with devices dev1 and dev2, made with the commands of the first."""
    url_file, pepper = directory / "accounts.url", directory / "pepper"
    url_file.write_text(f"{url}\n")
    url_file.chmod(0o600)
    environment = {
        "IOTHUB_SQL__URL_FILE": str(url_file),
        "IOTHUB_SQL__TIMEOUT": "2s",
        "IOTHUB_SQL__CONNECT_TIMEOUT": "2s",
        "IOTHUB_AUTH__PEPPER_FILE": str(pepper),
        "IOTHUB_AUTH__FAILURES": "off",
    }
    hubs = []
    for number in range(1, count + 1):
        own = {**environment, "IOTHUB_NODE__NUMBER": str(number), "IOTHUB_NODE__NAME": f"hub-{number}"}
        hub = Hub(directory / f"hub-{number}", {"tcp": free_port(), "http": free_port()}, environment=own)
        hub.run("init")
        hubs.append(hub)
    hubs[0].tenant("acme", "dev1", "dev2")
    return hubs
