"""Secrets that a page has made many of: a file to download, in a dialogue that waits until somebody says that he has it.

Knows no devices: a secret has a name, a username and its text.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from nicegui import ui

from iothub.base import log as logging
from iothub.dashboard.api import Json

log = logging.get(__name__)

_COLUMNS = ("name", "username", "secret")


def offer(shown: ui.dialog, close: ui.button, secrets: Sequence[Json]) -> None:
    """Draw the download of secrets that are made. From now on the dialogue closes by its button `close` alone."""
    if not secrets:
        return
    shown.props("persistent")
    close.set_text("I have kept them")
    count = "1 secret was" if len(secrets) == 1 else f"{len(secrets)} secrets were"
    ui.label(f"{count} made, to be shown this once: only a hash of each is stored.")
    ui.button("Download the secrets", icon="download", on_click=lambda: _download(secrets))


def is_left(shown: ui.dialog, secrets: Sequence[Json]) -> bool:
    """Whether the page is closed: nothing can be drawn on it, and secrets that were made meanwhile are lost, which the log says."""
    if shown.is_deleted and secrets:
        names = [str(row["username"]) for row in secrets[:10]]
        log.warning(
            "secrets of new devices were shown to nobody: their page was closed before they were made; "
            "`iothub device rotate-secret` makes new ones",
            count=len(secrets),
            first=", ".join(names),
        )
    return bool(shown.is_deleted)


def _download(secrets: Sequence[Json]) -> None:
    ui.download.content(as_csv(secrets), "secrets.csv")


def as_csv(secrets: Sequence[Json]) -> str:
    r"""Return the file. Nothing is put before what a spreadsheet takes for a formula: a secret may begin with `-`, and must stay what it is.

    >>> as_csv([{"name": "d1", "username": "acme/d1", "secret": "-x"}])
    'name,username,secret\\nd1,acme/d1,-x\\n'
    """
    written = io.StringIO()
    writer = csv.DictWriter(written, _COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(secrets)
    return written.getvalue()
