"""Where the ledger keeps what: the names of its keys in Redis, all of one installation with one hash tag.

Knows no script and no value.

    SCOPE{quota}:hubs       HASH  hub -> "until number": its lease in Unix ms of Redis, and how many scripts it has run
    SCOPE{quota}:state      HASH  settled, seen: when all hubs had time to come back, and when a hub was there last
    SCOPE{quota}:wanted     ZSET  count or rate -> when a hub went short of it while others held more than they used
    SCOPE{quota}:c:NAME     HASH  hub -> "granted spare", NAME is TENANT:QUOTA or, for what may be refused in a window, TENANT:QUOTA/SECONDS
    SCOPE{quota}:r:NAME     HASH  hub -> "held wished" of a rate, in units of its window; NAME is TENANT:QUOTA/SECONDS
    SCOPE{quota}:w:NAME     HASH  data directory -> used; NAME is TENANT:QUOTA/SECONDS@START or TENANT:QUOTA/SECONDS@START:DEVICE
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from iothub_services.quota.names import Quota
from iothub_services.quota.usage import UsageKey


@dataclass(frozen=True, slots=True)
class Keys:
    """`scope`: returns what every key of the installation begins with, such as `iothub:6ba7b810:`.

    Called at each use, because accounts on a server name the installation only when they answer.
    """

    scope: Callable[[], str]

    @property
    def hubs(self) -> str:
        return self._of("hubs")

    @property
    def state(self) -> str:
        return self._of("state")

    @property
    def wanted(self) -> str:
        return self._of("wanted")

    def count(self, name: str) -> str:
        return self._of(f"c:{name}")

    def rate(self, name: str) -> str:
        return self._of(f"r:{name}")

    def window(self, key: UsageKey, start: int) -> str:
        device = f":{key.subject}" if key.subject else ""
        return self._of(f"w:{key.tenant_id}:{key.quota}/{key.seconds}@{start}{device}")

    def _of(self, what: str) -> str:
        return f"{self.scope()}{{quota}}:{what}"


def count_name(tenant_id: int, quota: Quota, seconds: int = 0) -> str:
    """Name what is counted for a tenant, in a window of that length in seconds; 0: until it is given back."""
    return f"{tenant_id}:{quota.value}/{seconds}" if seconds else f"{tenant_id}:{quota.value}"
