"""Records of tenants and devices as octets for a cache that others can read and write: signed, so that only our hubs can make one.

Knows no cache. The signature is an HMAC with a key of its own, derived from the server's pepper; it covers the key of the entry, so that one device's
record cannot be stored as another's. The content is what SQL holds: no plain secret, but names, rules and hashes can be read.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum, EnumType
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

from iothub_services.auth.change_watermark import ChangePosition
from iothub_services.auth.port import Ban, DeviceRecord, Rule, TenantRecord, TokenIssuer, TokenKey
from iothub_services.auth.secrets import mac

Record = TypeVar("Record", TenantRecord, DeviceRecord)

MOST_BYTES = 256 << 10
_PURPOSE = b"iothub: seal of records in a shared cache, 1"
_MAC_BYTES = 32

_SHAPE = [(kind.__name__, [each.name for each in fields(kind)]) for kind in (
    TenantRecord, DeviceRecord, Rule, Ban, TokenIssuer, TokenKey,
)]  # fmt: skip
FORM = hashlib.sha256(repr(_SHAPE).encode()).hexdigest()[:8]
"""Another program's records, whose fields are others, have another one; it belongs into the place of a record."""


class ForgedError(Exception):
    """The signature does not match: the entry was forged, changed, or copied from another key."""


@dataclass(frozen=True, slots=True)
class SignedEntry(Generic[Record]):
    """A record (None: there is no such tenant, no such device) and the change as of which it is true."""

    as_of: ChangePosition
    record: Record | None


class EntrySigner:
    """Signs entries of the cache, and reads those whose signature is ours."""

    def __init__(self, pepper: bytes) -> None:
        self._key = mac(_PURPOSE, pepper)

    def sign_tenant(self, place: bytes, entry: SignedEntry[TenantRecord]) -> bytes:
        return self._signed_bytes(place, entry)

    def sign_device(self, place: bytes, entry: SignedEntry[DeviceRecord]) -> bytes:
        return self._signed_bytes(place, entry)

    def open_tenant(self, place: bytes, octets: bytes) -> SignedEntry[TenantRecord]:
        """Raises ForgedError."""
        return self._open(place, octets, _tenant)

    def open_device(self, place: bytes, octets: bytes) -> SignedEntry[DeviceRecord]:
        """Raises ForgedError."""
        return self._open(place, octets, _device)

    def _signed_bytes(self, place: bytes, entry: SignedEntry[Any]) -> bytes:
        content = [entry.as_of, _written(entry.record)]
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
        return self._mac(place, text) + text

    def _open(self, place: bytes, octets: bytes, made: Callable[[list[Any]], Record]) -> SignedEntry[Record]:
        signature, text = octets[:_MAC_BYTES], octets[_MAC_BYTES:]
        if not hmac.compare_digest(signature, self._mac(place, text)):
            raise ForgedError
        as_of, row = json.loads(text.decode())
        return SignedEntry(ChangePosition(*as_of), None if row is None else made(row))

    def _mac(self, place: bytes, text: bytes) -> bytes:
        """The place's length goes first, so that place and text cannot be read in two ways."""
        return mac(len(place).to_bytes(4, "big") + place + text, self._key)


def _written(value: Any) -> Any:
    """Return a record as a list of its fields' values, and what is in them likewise."""
    if is_dataclass(value):
        return [_written(getattr(value, each.name)) for each in fields(value)]
    if isinstance(value, tuple):
        return list(map(_written, value))
    return value.value if isinstance(value, Enum) else value


def _reader(kind: Any) -> Callable[[Any], Any]:
    """Return what makes a value of this type of what `_written` has made of it."""
    make: Callable[..., Any] = kind
    if is_dataclass(kind):
        kinds = get_type_hints(kind)
        readers = [_reader(kinds[each.name]) for each in fields(kind)]
        return lambda row: make(*[read(value) for read, value in zip(readers, row, strict=True)])
    if get_origin(kind) is tuple:
        read_one = _reader(get_args(kind)[0])
        return lambda values: tuple(map(read_one, values))
    return make if isinstance(kind, EnumType) else _as_it_is


def _as_it_is(value: Any) -> Any:
    return value


_tenant: Callable[[Any], TenantRecord] = _reader(TenantRecord)
_device: Callable[[Any], DeviceRecord] = _reader(DeviceRecord)
