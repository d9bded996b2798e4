"""A test of a webhook: one signed event, sent by whoever asks and not by a hub.

Knows no command and no path. It takes the place of a delivery in everything but the queue: address, signature, time and answer.
"""

from __future__ import annotations

import asyncio
import secrets
from importlib.metadata import version

from iothub.config.sections import Config
from iothub.hub.webhooks import delivery_of
from iothub.records.tenant_events import VERSION, encode_body
from iothub_services.webhooks.lookups import Lookups
from iothub_services.webhooks.sending import send
from iothub_tenants.accounts import webhooks
from iothub_tenants.accounts.store import AccountStore

TEST_EVENT = "webhook/test"


def send_test(store: AccountStore, settings: Config, tenant: str | None, name: str) -> dict[str, object]:
    """Send the event `webhook/test` and return what came of it. Blocks. Raises NotFoundError."""
    target = webhooks.target(store, tenant, name)
    event_id = f"test-{secrets.token_hex(8)}"
    body = encode_body(
        {
            "v": VERSION,
            "id": event_id,
            "event": TEST_EVENT,
            "tenant": tenant or "",
            "webhook": name,
            "ts": int(store.clock.wall() * 1000),
        }
    )
    agent = f"iothub/{version('iothub')}"
    sent = asyncio.run(send(target, event_id, body, delivery_of(settings.webhooks), agent, Lookups()))
    return {
        "name": name,
        "is_delivered": sent.is_delivered,
        "status": sent.status,
        "detail": sent.detail,
        "event_id": event_id,
    }
