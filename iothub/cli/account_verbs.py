"""The verbs that most nouns of the accounts share: list all, show one, change one by its name.

Knows no noun: each noun's module passes its functions and texts. A verb with options is written there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from iothub.cli.app import App, verb
from iothub.cli.paging import Page, paged
from iothub_tenants.accounts.plain import plain


def add_list(group: click.Group, read: Callable[..., Sequence[object]], columns: Sequence[str], text: str) -> None:
    """Add `list TENANT`: `read(store, tenant)` returns records by name."""

    def list_all(app: App, tenant: str, page: Page) -> None:
        page.show(app, page.by_name([plain(record) for record in read(app.store(), tenant)]), *columns)

    _add(group, "list", paged("name")(list_all), ("tenant",), text)


def add_show(group: click.Group, read: Callable[..., object], text: str) -> None:
    """Add `show TENANT NAME`: `read(store, tenant, name)` returns a record."""

    def show(app: App, tenant: str, name: str) -> None:
        app.record(plain(read(app.store(), tenant, name)))

    _add(group, "show", show, ("tenant", "name"), text)


def add_change(group: click.Group, words: str, change: Callable[..., object], confirmation: str, text: str) -> None:
    """Add a verb with the arguments in `words` ("join tenant name device"): `change(store, ...)` takes them and returns the record.

    `confirmation` has the arguments in braces.
    """
    name, *arguments = words.split()

    def run(app: App, **given: str) -> None:
        record = plain(change(app.store(), *(given[argument] for argument in arguments)))
        app.done(confirmation.format(**given), record)

    _add(group, name, run, arguments, text)


def _add(group: click.Group, name: str, run: Callable[..., None], arguments: Sequence[str], text: str) -> None:
    run.__doc__ = text
    for argument in reversed(arguments):
        run = click.argument(argument)(run)
    verb(group, name)(run)
