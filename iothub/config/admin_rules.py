"""What is wrong in settings of logins by an OpenID provider that are valid alone.

Knows no file: it gets where each setting is set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from iothub.config.sections import Config

Where = Callable[[str], str | None]
"""Returns where a setting is set; None: it is not, and has its default."""

_NEEDED = {
    "admin.oidc.client_id": "the id under which the provider knows this API",
    "admin.oidc.roles": "which groups have which roles",
    "admin.url": "the address that the provider sends browsers back to",
}


def mistakes(config: Config, where: Where) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield each mistake: the settings that it follows from, and its text."""
    admin = config.admin
    if not admin.oidc.issuer:
        return
    place = where("admin.oidc.issuer")
    values = (admin.oidc.client_id, admin.oidc.roles, admin.url)
    for (name, what), value in zip(_NEEDED.items(), values, strict=True):
        if not value:
            yield ((name,), f"{place}: admin.oidc.issuer needs {name}: {what}")
    for line in admin.oidc.roles:
        if line.endswith(("tenant-admin", "tenant-viewer")) and not admin.oidc.tenant_claim:
            yield (
                ("admin.oidc.roles", "admin.oidc.tenant_claim"),
                f'{where("admin.oidc.roles")}: admin.oidc.roles: "{line}" names no tenant: add :TENANT, or set admin.oidc.tenant_claim',
            )
