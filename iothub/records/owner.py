"""What a store on a server says of whose it is: the installation whose hub has used it first.

Knows no store and no accounts; two installations never share a store, for both number their tenants from 1.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from iothub.base.errors import CorruptRecordError, FutureRecordError
from iothub.records.causes import UNREADABLE, in_words
from iothub.records.json_text import read_json, require_utf8

VERSION = 1

_REMEDY = (
    "where no other accounts have used it, remove what says so (back-ends.md in the guide), and the next start takes it"
)


@dataclass(frozen=True, slots=True)
class Owner:
    """Who a store belongs to. `installation`: the id of the accounts; `hub` and `at_ms`: which hub said so, and when, for people."""

    installation: str
    hub: str
    at_ms: int  # Unix time


def encode_owner(owner: Owner) -> bytes:
    """Return the stored form: JSON."""
    value = {"v": VERSION, "installation": owner.installation, "hub": owner.hub, "at": owner.at_ms}
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def decode_owner(value: bytes, where: str) -> Owner:
    """Read an owner. Raises CorruptRecordError for damage, FutureRecordError for a future version, naming `where` it is."""
    try:
        fields: dict[str, Any] = read_json(value)
        version, installation, hub, at_ms = fields["v"], fields["installation"], fields["hub"], fields["at"]
        require_utf8(value, fields)
    except UNREADABLE as error:
        raise CorruptRecordError(f"{where}: whose it is cannot be read ({in_words(error)}): {_REMEDY}") from error
    if type(version) is int and version > VERSION:
        raise FutureRecordError(
            f"{where}: whose it is has format version {version}, this program knows {VERSION}: upgrade it"
        )
    is_right = version == VERSION and type(at_ms) is int and isinstance(hub, str)
    if not is_right or not isinstance(installation, str) or not installation:
        raise CorruptRecordError(f"{where}: whose it is cannot be read (wrong fields): {_REMEDY}")
    return Owner(installation, hub, at_ms)
