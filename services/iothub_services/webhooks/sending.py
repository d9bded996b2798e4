"""Sends one request to one webhook: resolve, check, connect, post, read the status. For an event loop of asyncio's.

Knows no queue. A redirect is not followed; of the answer nothing but the status counts, and little of it is read.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from functools import cache
from typing import NamedTuple

import h11

from iothub.base.errors import ConfigError, DeniedError
from iothub_services.webhooks import signing
from iothub_services.webhooks.addresses import Place, checked_addresses, place_of
from iothub_services.webhooks.lookups import Lookups
from iothub_services.webhooks.port import Delivery, Target

MOST_ANSWER_BYTES = 16 << 10
_CHUNK = 4_096


@cache
def _tls() -> ssl.SSLContext:
    """Return the context of all requests; reading the authorities of the machine takes a tenth of a second, and most hubs have no webhook."""
    return ssl.create_default_context()


class Sent(NamedTuple):
    """What came of it. `status`: 0: there was no response; `detail`: why it failed, in words."""

    is_delivered: bool
    status: int
    detail: str


async def send(target: Target, event_id: str, body: bytes, delivery: Delivery, agent: str, lookups: Lookups) -> Sent:
    """Post a body, within `delivery.timeout_s` from the look-up of the name to the status. Never raises for what the other side does."""
    try:
        async with asyncio.timeout(delivery.timeout_s):
            return await _send(target, event_id, body, delivery, agent, lookups)
    except TimeoutError:
        return Sent(False, 0, f"no answer in {delivery.timeout_s:g} s")
    except (DeniedError, ConfigError) as error:
        return Sent(False, 0, str(error))
    except ssl.SSLError as error:
        return Sent(False, 0, f"TLS: {error.reason or error}")
    except h11.RemoteProtocolError as error:
        return Sent(False, 0, f"the answer is no HTTP/1.1: {error}")
    except (OSError, UnicodeError) as error:
        return Sent(False, 0, f"cannot connect: {error}")


async def _send(target: Target, event_id: str, body: bytes, delivery: Delivery, agent: str, lookups: Lookups) -> Sent:
    place = place_of(target.url)
    addresses = checked_addresses(await lookups.addresses(target.tenant_id, place.host, place.port), delivery.networks)
    reader, writer = await _connect(place, addresses)
    try:
        writer.write(_request(place, target, event_id, body, agent))
        await writer.drain()
        status = await _status(reader)
    finally:
        writer.transport.abort()  # nothing more is read, whatever comes
    if 200 <= status < 300:
        return Sent(True, status, "")
    what = "a redirect, which is not followed" if 300 <= status < 400 else "refused by the receiver"
    return Sent(False, status, f"status {status}: {what}")


async def _connect(place: Place, addresses: list[str]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    error: OSError = OSError("the name has no address")
    for address in addresses:
        try:
            tls = {"ssl": _tls(), "server_hostname": place.host} if place.is_tls else {}
            return await asyncio.open_connection(address, place.port, limit=_CHUNK, **tls)  # type: ignore[arg-type]
        except ssl.SSLError:
            raise
        except OSError as failed:
            error = failed
    raise error


def _request(place: Place, target: Target, event_id: str, body: bytes, agent: str) -> bytes:
    connection = h11.Connection(h11.CLIENT)
    headers = {
        "host": place.host_header,
        "user-agent": agent,
        "content-type": "application/json",
        "content-length": str(len(body)),
        "connection": "close",
        **signing.headers(target.secrets, event_id, int(time.time()), body),
    }
    request = h11.Request(method="POST", target=place.path, headers=list(headers.items()))
    parts = (connection.send(each) for each in (request, h11.Data(data=body), h11.EndOfMessage()))
    return b"".join(part or b"" for part in parts)


async def _status(reader: asyncio.StreamReader) -> int:
    """Read the status. Raises RemoteProtocolError, OSError."""
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="POST", target="/", headers=[("host", "-"), ("content-length", "0")]))
    connection.send(h11.EndOfMessage())
    read = 0
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Response):
            return int(event.status_code)
        if event is h11.NEED_DATA:
            data = await reader.read(_CHUNK)
            read += len(data)
            if not data or read > MOST_ANSWER_BYTES:
                raise h11.RemoteProtocolError("it ends before its status, or its head is too long")
            connection.receive_data(data)
