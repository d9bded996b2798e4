"""/users: the people who log in. Whoever may change them can be anybody, so it takes the role platform-admin."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body, Response

from iothub.rest import answers, models
from iothub.rest.answers import Page
from iothub.rest.models import Items, Name
from iothub.rest.routes import Call, Routes
from iothub.rest.scopes import Scope
from iothub_tenants.accounts import users
from iothub_tenants.accounts.plain import plain
from iothub_tenants.accounts.users import NewPassword

routes = Routes("users")


@routes.get("/users", Scope.USERS_READ, returns=Items)
def list_users(call: Call, page: Page) -> Response:
    """List all users."""
    return page.behind([plain(user) for user in users.list_all(call.store)])


@routes.post("/users", Scope.USERS_WRITE, returns=models.UserWithPassword)
def create_user(
    call: Call, body: Annotated[models.NewPlatformUser | models.NewTenantUser, Body(discriminator="role")]
) -> Response:
    """Create a user. Without a password one is generated, and returned this once, in `password`."""
    made = users.create(call.store, body.name, body.role, getattr(body, "tenant", None), body.password)
    return answers.created(_row(made), f"/api/v1/users/{body.name}")


@routes.get("/users/{name}", Scope.USERS_READ, returns=models.UserShown)
def show_user(call: Call, name: Name) -> Response:
    """Show one user."""
    return answers.shown(plain(users.show(call.store, name)))


@routes.delete("/users/{name}", Scope.USERS_WRITE)
def delete_user(call: Call, name: Name) -> Response:
    """Delete a user; all logins of the user end. Nobody deletes himself."""
    call.require_other("user", name, "deletes")
    users.remove(call.store, name)
    return answers.gone()


@routes.post("/users/{name}:set-password", Scope.USERS_WRITE, status=200, returns=models.UserWithPassword)
def set_user_password(call: Call, name: Name, body: models.NewUserPassword | None = None) -> Response:
    """Give a user another password; all logins of the user end. Without one it is generated, and returned this once, in `password`."""
    return answers.secret(_row(users.set_password(call.store, name, body.password if body else None)))


@routes.post("/users/{name}:disable", Scope.USERS_WRITE, status=200, returns=models.UserShown)
def disable_user(call: Call, name: Name) -> Response:
    """End all logins of a user, and refuse new ones. Nobody disables himself."""
    call.require_other("user", name, "disables")
    return answers.shown(plain(users.disable(call.store, name)))


@routes.post("/users/{name}:enable", Scope.USERS_WRITE, status=200, returns=models.UserShown)
def enable_user(call: Call, name: Name) -> Response:
    """Let a disabled user log in again."""
    return answers.shown(plain(users.enable(call.store, name)))


def _row(made: NewPassword) -> dict[str, object]:
    generated = {} if made.password is None else {"password": made.password}
    return {**plain(made.user), **generated}
