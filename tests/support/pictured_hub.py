"""A small installation to look at: tenants, devices, clients and what went wrong, the same ones each time.

Knows no page: `tests/nightly/test_pictures.py` takes the pictures.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

from iothub_tenants.accounts import streams
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.store import AccountStore
from iothub_tenants.accounts.streams import Wanted
from tests.support.clients.raw import RawClient
from tests.support.dashboard import Dashboard
from tests.support.waiting import until
from tests.support.webhook_receiver import Receiver

T = "/tenants/acme"
NAMES = {
    "acme": "Acme Energy",
    "harbour": "Harbour Logistics",
    "northwind": "Northwind Farms",
    "orchard": "Orchard Labs",
}
DEVICES = (*(f"meter-{number:03}" for number in range(1, 13)), "gateway-north", "gateway-south")
SHARED_SECRET = "a shared secret that is long enough for HS256"


@contextmanager
def filled(served: Dashboard, receiver: Receiver) -> Iterator[None]:
    """Make it; clients are connected while the block runs."""
    for name, title in NAMES.items():
        if name != "acme":
            served("POST", "/tenants", {"name": name})
        served("PATCH", f"/tenants/{name}", {"display_name": title, "client_id_policy": "owner"})
    served("POST", "/tenants/orchard:suspend")
    served("POST", f"{T}/groups", {"name": "north"})
    for name in DEVICES:
        groups = ["north"] if name.startswith("meter-00") else []
        served("POST", f"{T}/devices", {"name": name, "password": "secret", "groups": groups})
    served("POST", f"{T}/devices/meter-012:disable")
    for subject, effect, action, topic in (
        ("@north", "allow", "publish", "sensors/{device}/#"),
        ("*", "deny", "both", "firmware/#"),
        ("gateway-north", "allow", "subscribe", "sensors/#"),
    ):
        served("POST", f"{T}/acl-rules", {"subject": subject, "effect": effect, "action": action, "filter": topic})
    served("PATCH", f"{T}/quotas", {"limits": {"connections": 2000, "publish_messages": ["1000/1s"]}})
    served("POST", f"{T}/token-issuers", {"name": "fleet", "secret": SHARED_SECRET, "audience": "iothub"})
    served(
        "POST",
        f"{T}/webhooks",
        {"name": "pager", "url": f"http://127.0.0.1:{receiver.server.server_port}/pager", "events": ["client/*"]},
    )
    served(
        "POST", "/webhooks", {"name": "ops", "url": "https://hooks.example.com/ops", "events": ["alarm/*", "node/*"]}
    )
    with closing(AccountStore(sqlite_url(served.hub.data_dir / "accounts.db"), pepper=b"x" * 32)) as store:
        streams.create(store, "acme", Wanted("telemetry", "telemetry/#"))
    until(lambda: _is_delivered(served, receiver), "the hub has the webhook")
    with ExitStack() as clients:
        _connect(served, clients)
        until(lambda: len(served("GET", f"{T}/webhooks/pager/attempts")["items"]) > 8, "the events are delivered")
        yield


def _is_delivered(served: Dashboard, receiver: Receiver) -> bool:
    with closing(RawClient(served.hub.ports["tcp"])) as client:
        client.connect("meter-001-1", username="acme/meter-001")
        client.disconnect()
    return bool(receiver.received)


def _connect(served: Dashboard, clients: ExitStack) -> None:
    def client(device: str, password: str = "secret", *, clean: bool = True) -> RawClient:
        made = clients.enter_context(closing(RawClient(served.hub.ports["tcp"])))
        made.connect(f"{device}-1", username=f"acme/{device}", password=password, clean=clean)
        return made

    away = client("gateway-south", clean=False)
    away.subscribe(("sensors/#", 1))
    away.disconnect()
    north = client("gateway-north", clean=False)
    north.subscribe(("sensors/#", 1), ("$share/workers/jobs/+", 1))
    for number in range(1, 6):
        meter = client(f"meter-{number:03}")
        meter.publish(
            f"sensors/meter-{number:03}/power", f'{{"kW": {3.1 + number / 7:.2f}}}'.encode(), 1, 1, retain=True
        )
    client("meter-006", password="wrong")
    client("meter-012")
