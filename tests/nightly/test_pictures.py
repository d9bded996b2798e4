"""Pictures of the dashboard for the pages of docs/: `IOTHUB_PICTURES=docs/images` takes them anew, otherwise they go to a temporary folder.

The installation is made up (`tests.support.pictured_hub`, `tests.support.pictured_admin`), so that two runs differ in their times alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from tests.support.dashboard import Dashboard, dashboard
from tests.support.hubs.datadirs import fresh_hub
from tests.support.pictured_hub import filled
from tests.support.ports import free_port
from tests.support.webhook_receiver import receiving

MOST_BYTES = 60_000  # of one picture: the repository keeps them
COLOURS = 128
SIZE = {"width": 1280, "height": 800}
PROGRAM = (sys.executable, "-m", "tests.support.pictured_admin")
T = "/tenants/acme"
PICTURES = (  # name, path, theme, whether on a phone
    ("overview", "/", "light", False),
    ("overview-dark", "/", "dark", False),
    ("overview-phone", "/", "light", True),
    ("limits", f"{T}/quotas", "light", False),
    ("clients", f"{T}/clients", "light", False),
    ("rejected", f"{T}/rejected", "light", False),
    ("explain", f"{T}/explain?device=meter-012&client_id=meter-012-1", "dark", False),
    ("webhook", f"{T}/webhooks/pager", "light", False),
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    hub = fresh_hub(tmp_path_factory.mktemp("pictures"), admin__enabled="off")
    with (hub.data_dir / "iothub.toml").open("a") as file:  # the hub and the API both read it
        file.write('\n[webhooks]\nallow_networks = ["127.0.0.0/8"]\n')
    hub.ports["http"] = free_port()
    hub.start()
    with receiving() as receiver, dashboard(hub, PROGRAM) as found, filled(found, receiver):
        yield found
    hub.finish()


def test_pictures_are_taken(served: Dashboard, tmp_path: Path) -> None:
    """Each one shows a page without a refusal, and is small enough to be kept."""
    folder = Path(os.environ.get("IOTHUB_PICTURES") or tmp_path)
    for name, path, theme, is_phone in PICTURES:
        page = served.as_("platform-admin", path, phone=is_phone)
        page.context.add_cookies([{"name": "iothub_theme", "value": theme, "url": served.base}])
        if not is_phone:
            page.set_viewport_size(SIZE)  # type: ignore[arg-type]
        served.open(page, path)
        expect(page.locator("main [role=heading]").first).to_be_visible()
        assert page.locator(".io-problem").count() == 0, path

        picture = small(page)
        (folder / f"dashboard-{name}.png").write_bytes(picture)
        page.close()
        assert len(picture) <= MOST_BYTES, name


def small(page: Page) -> bytes:
    """Return what the page looks like, once its charts are drawn, in few colours."""
    page.wait_for_timeout(400)  # of a chart's first drawing; nothing says when it is over
    taken = Image.open(BytesIO(page.screenshot(animations="disabled", caret="hide"))).convert("RGB")
    written = BytesIO()
    taken.quantize(COLOURS, dither=Image.Dither.NONE).save(written, "PNG", optimize=True)
    return written.getvalue()
