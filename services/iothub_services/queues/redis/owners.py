"""Whose the queues in a Redis are: a key beside them, put by the first installation that uses them.

Knows one key; what follows from another owner is `iothub.hub.stores.installation`'s.
"""

from __future__ import annotations

from typing import cast

from iothub.base.errors import BackendError
from iothub.records.owner import Owner, decode_owner, encode_owner
from iothub_services.queues.redis.names import Names
from iothub_services.queues.redis.sending import Sender
from iothub_services.redis.calls import command


def owner(sender: Sender, names: Names) -> Owner | None:
    """Return whose the queues are; None: nobody's yet. Raises BackendError, CorruptRecordError, ConflictError: a newer iothub's."""
    found = cast("bytes | None", sender.read_one(command("GET", names.owner)))
    return None if found is None else decode_owner(found, f"Redis's key {names.owner.decode()}")


def claim(sender: Sender, names: Names, by: Owner) -> Owner:
    """Take the queues unless somebody has them, and return whose they are then. May be repeated after it has failed. Raises as `owner`."""
    if owner(sender, names) is None:  # a server that is full refuses a SET that changes nothing, too
        sender.write_one(command("SET", names.owner, encode_owner(by), "NX"))
    found = owner(sender, names)
    if found is None:
        raise BackendError("Redis did not store the owner of the queues; will retry", retryable=True)
    return found
