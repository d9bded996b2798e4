"""Which commands work with a context, and which need the hub's machine.

Knows no function of the API: `iothub.cli.remote` and `iothub.cli.remote_hub` do.
"""

from __future__ import annotations

from collections.abc import Mapping

COMMANDS: Mapping[str, str] = {
    "": "apply rejected status doctor",
    "tenant": "list show create update suspend resume protect unprotect delete export import",
    "device": "list show create import rotate-secret set-password set-certificate set-jwt enable disable delete",
    "group": "list show create join leave delete",
    "acl": "list allow deny import remove test",
    "ban": "list add remove",
    "quota": "list show explain set unset",
    "plan": "list show create set unset delete",
    "token-issuer": "list show add update remove",
    "client": "list show kick top",
    "session": "list show discard",
    "queue": "list show purge",
    "retain": "list show delete",
    "explain": "connect publish subscribe",
    "alarm": "list show",
    "trace": "start list show tail download stop delete",
    "stream": "list show create delete",
    "webhook": "list show create update rotate test delete",
    "usage": "show",
    "job": "list run cancel status history show logs forget",
    "config": "show reload",
    "events": "lag",
    "cluster": "status nodes drain resume evict",
    "audit": "list",
    "admin key": "list show create rotate disable enable delete",
    "admin user": "list show create set-password disable enable delete",
}
"""The nouns, each with those of its verbs that have a counterpart in the REST API; commands without a noun first."""

HERE: Mapping[str, str] = {
    "": "init serve bundle backup restore",
    "config": "check",
    "events": "tail verify",
    "state": "verify",
    "job": "plan schedule",
    "db": "status upgrade copy adopt",
    "hbase": "create-tables status sweep",
    "admin": "serve",
    "cluster": "init-ca issue",
}
"""What works only on the hub's machine. Every command is in one of the two tables, or needs neither hub nor accounts."""


def works_remotely(words: str) -> bool:
    """Whether a command, such as `tenant list`, does."""
    noun, _, verb = words.rpartition(" ")
    return verb in COMMANDS.get(noun, "").split()


def begins_remotely(words: str) -> bool:
    """Whether a command line, without `iothub`, begins with such a command; `client list acme` does."""
    parts = words.split()
    return any(works_remotely(" ".join(parts[:count])) for count in (1, 2, 3))
