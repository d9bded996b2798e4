"""One tenant's retained messages: which topics there are, what new ones may still come, and their replay to a new subscription.

Knows no driver: bodies are fetched through an injected awaitable call, a slice at a time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from iothub.clock import Clock
from iothub.engine.message import Message
from iothub.engine.plane import Plane
from iothub.engine.router import Subscription
from iothub.engine.session import Session
from iothub.records.message import decode_message
from iothub_services.quota.ledger import LocalLedger
from iothub_services.quota.names import Quota
from iothub_services.retained.index import RetainedIndex
from iothub_services.retained.port import RetainedBody

SLICE = 256

Fetch = Callable[[int, Sequence[bytes]], Awaitable[list[RetainedBody]]]
