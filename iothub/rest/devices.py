"""/tenants/{tenant}/devices and /groups: accounts of a tenant, their credentials and their groups."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import Query, Response

from iothub.rest import answers, models
from iothub.rest.answers import Page
from iothub.rest.models import Anything, DeviceName, Items, Name, Prefix, TenantName
from iothub.rest.routes import CSV, Call, CsvLines, Routes
from iothub.rest.scopes import Scope
from iothub_tenants.accounts import devices, groups, imports
from iothub_tenants.accounts.csv_rows import read_csv_rows
from iothub_tenants.accounts.plain import plain

routes = Routes("devices")

_MOST_LINES = 1 << 31


@routes.get("/tenants/{tenant}/devices", Scope.DEVICES_READ, returns=Items)
def list_devices(call: Call, tenant: TenantName, page: Page, prefix: Prefix = "") -> Response:
    """List the devices of a tenant by name."""
    found = devices.page(call.store, tenant, page.after, page.limit + 1, prefix=prefix)
    return page.cut([plain(device) for device in found])


@routes.post("/tenants/{tenant}/devices", Scope.DEVICES_WRITE, returns=models.DeviceWithSecret)
def create_device(call: Call, tenant: TenantName, body: models.AnyNewDevice) -> Response:
    """Create a device. A generated secret is returned this once, in `secret`."""
    with_token = isinstance(body, models.NewTokenDevice)
    password = body.password if isinstance(body, models.NewDevice) else None
    made = devices.create(call.store, tenant, body.name, password=password, groups=body.groups, with_token=with_token)
    return answers.created(_with_secret(made), f"/api/v1/tenants/{tenant}/devices/{body.name}")


@routes.post("/tenants/{tenant}/devices:import", Scope.DEVICES_WRITE, status=200, returns=Anything, extra=CSV)
def import_devices(
    call: Call,
    tenant: TenantName,
    lines: CsvLines,
    is_dry_run: Annotated[bool, Query(alias="dry_run", description="Check all rows; create nothing.")] = False,
    is_generating: Annotated[
        bool, Query(alias="generate_secrets", description="Make missing secrets; they are returned this once.")
    ] = False,
    first_line: Annotated[
        int | None,
        Query(
            ge=1,
            le=_MOST_LINES,
            description="The body is a part of a file, which follows the header with this line of it; bad lines are named so.",
        ),
    ] = None,
) -> Response:
    """Create many devices from CSV with the columns name,password[,groups][,limits]: all or none.

    Bad lines are named in `errors`. Send a large file in parts, each with the header and an Idempotency-Key of its own.
    """
    made: list[tuple[str, str]] = []
    names = imports.import_devices(
        call.store,
        tenant,
        lines,
        read=partial(read_csv_rows, is_generating=is_generating, first_line=first_line),
        keep=made.extend if is_generating else None,
        is_dry_run=is_dry_run,
    )
    secrets = [{"name": name, "username": f"{tenant}/{name}", "secret": secret} for name, secret in made]
    return answers.secret({"name": tenant, "devices": names, "secrets": secrets, "is_imported": not is_dry_run})


@routes.get("/tenants/{tenant}/devices/{device}", Scope.DEVICES_READ, returns=models.DeviceShown)
def show_device(call: Call, tenant: TenantName, device: DeviceName) -> Response:
    """Show one device, without its secret."""
    return answers.shown(plain(devices.show(call.store, tenant, device)))


@routes.delete("/tenants/{tenant}/devices/{device}", Scope.DEVICES_WRITE)
def delete_device(call: Call, tenant: TenantName, device: DeviceName) -> Response:
    """Delete a device, the rules, limits and bans that name it, and its sessions."""
    devices.delete(call.store, tenant, device)
    return answers.gone()


@routes.post(
    "/tenants/{tenant}/devices/{device}:rotate-secret",
    Scope.DEVICES_WRITE,
    status=200,
    returns=models.DeviceWithSecret,
)
def rotate_device_secret(call: Call, tenant: TenantName, device: DeviceName) -> Response:
    """Replace whatever credential the device has by a new secret, returned this once."""
    return answers.secret(_with_secret(devices.rotate_secret(call.store, tenant, device)))


@routes.put("/tenants/{tenant}/devices/{device}/password", Scope.DEVICES_WRITE, returns=models.DeviceShown)
def set_device_password(call: Call, tenant: TenantName, device: DeviceName, body: models.Password) -> Response:
    """Replace whatever credential the device has by this password."""
    return answers.shown(plain(devices.set_password(call.store, tenant, device, body.password)))


@routes.put("/tenants/{tenant}/devices/{device}/certificate", Scope.DEVICES_WRITE, returns=models.DeviceShown)
def set_device_certificate(
    call: Call, tenant: TenantName, device: DeviceName, body: models.CertificateSubject
) -> Response:
    """Replace whatever credential the device has by a TLS client certificate of this subject."""
    return answers.shown(plain(devices.set_certificate(call.store, tenant, device, body.subject)))


@routes.post("/tenants/{tenant}/devices/{device}:set-jwt", Scope.DEVICES_WRITE, status=200, returns=models.DeviceShown)
def set_device_jwt(call: Call, tenant: TenantName, device: DeviceName) -> Response:
    """Replace whatever credential the device has by tokens (JWT) of the tenant's token issuers."""
    return answers.shown(plain(devices.set_jwt(call.store, tenant, device)))


@routes.post("/tenants/{tenant}/devices/{device}:enable", Scope.DEVICES_WRITE, status=200, returns=models.DeviceShown)
def enable_device(call: Call, tenant: TenantName, device: DeviceName) -> Response:
    """Let the device connect again."""
    return answers.shown(plain(devices.enable(call.store, tenant, device)))


@routes.post("/tenants/{tenant}/devices/{device}:disable", Scope.DEVICES_WRITE, status=200, returns=models.DeviceShown)
def disable_device(call: Call, tenant: TenantName, device: DeviceName) -> Response:
    """Close the device's connections and refuse new ones; its account and sessions stay."""
    return answers.shown(plain(devices.disable(call.store, tenant, device)))


@routes.get("/tenants/{tenant}/groups", Scope.DEVICES_READ, returns=Items)
def list_groups(call: Call, tenant: TenantName, page: Page) -> Response:
    """List the groups of a tenant with their devices."""
    return page.behind([plain(group) for group in groups.list_all(call.store, tenant)])


@routes.post("/tenants/{tenant}/groups", Scope.DEVICES_WRITE, returns=Anything)
def create_group(call: Call, tenant: TenantName, body: models.NewGroup) -> Response:
    """Create an empty group."""
    made = groups.create(call.store, tenant, body.name)
    return answers.created(plain(made), f"/api/v1/tenants/{tenant}/groups/{made.name}")


@routes.get("/tenants/{tenant}/groups/{name}", Scope.DEVICES_READ, returns=Anything)
def show_group(call: Call, tenant: TenantName, name: Name) -> Response:
    """Show one group."""
    return answers.shown(plain(groups.show(call.store, tenant, name)))


@routes.delete("/tenants/{tenant}/groups/{name}", Scope.DEVICES_WRITE)
def delete_group(call: Call, tenant: TenantName, name: Name) -> Response:
    """Delete a group and the rules that name it; its devices stay."""
    groups.delete(call.store, tenant, name)
    return answers.gone()


@routes.put("/tenants/{tenant}/groups/{name}/devices/{device}", Scope.DEVICES_WRITE, returns=models.DeviceShown)
def add_to_group(call: Call, tenant: TenantName, name: Name, device: DeviceName) -> Response:
    """Put a device into a group."""
    return answers.shown(plain(groups.join(call.store, tenant, name, device)))


@routes.delete(
    "/tenants/{tenant}/groups/{name}/devices/{device}", Scope.DEVICES_WRITE, status=200, returns=models.DeviceShown
)
def remove_from_group(call: Call, tenant: TenantName, name: Name, device: DeviceName) -> Response:
    """Take a device out of a group."""
    return answers.shown(plain(groups.leave(call.store, tenant, name, device)))


def _with_secret(made: devices.NewSecret) -> dict[str, object]:
    row = plain(made.device)
    if made.secret is not None:
        row["secret"] = made.secret
    return row
