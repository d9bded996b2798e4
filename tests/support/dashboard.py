"""The dashboard in a browser: a hub, `iothub admin serve` beside it, and Chromium, which loads nothing from elsewhere.

Knows no page. What a page must not do is watched on all of them: errors in the console, requests to other servers, dialogs that a script opens.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from playwright.sync_api import Browser, BrowserContext, Dialog, Page, Request, expect, sync_playwright

from tests.support.hubs.hub import IOTHUB, Hub
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S, until

PASSWORD = "correct horse battery"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or "/usr/bin/chromium"
PHONE = {"width": 390, "height": 800}
DESK = {"width": 1400, "height": 900}
_API = "/api/v1"
_WAIT_MS = PATIENCE_S * 1000
expect.set_options(timeout=_WAIT_MS)


_UNNAMED = """() => {
    const shown = (each) => each.offsetParent !== null && !each.closest("[aria-hidden=true]");
    const named = (each) => each.ariaLabel || each.innerText?.trim() || each.title || each.alt !== undefined && each.alt
        || each.labels?.length || each.getAttribute("aria-labelledby");
    return [...document.querySelectorAll("input, textarea, select, button, a, img, [role=button]")]
        .filter((each) => shown(each) && each.type !== "file" && !named(each)).map((each) => each.outerHTML.slice(0, 200));
}"""


def all_named(page: Page) -> None:
    """Every field has a label, every button, link and picture a name: a screen reader has nothing else."""
    assert page.evaluate(_UNNAMED) == []


@dataclass
class Watched:
    """What browsers have done that no page may."""

    found: list[str] = field(default_factory=list)

    def watch(self, page: Page, base: str) -> None:
        own = (base, base.replace("http", "ws", 1), "data:", "blob:")

        def asked(sent: Request) -> None:
            if not sent.url.startswith(own):
                self.found.append(f"request: {sent.url}")

        page.on("pageerror", lambda error: self.found.append(f"error of a script: {error}"))
        page.on("dialog", self._opened)
        page.on("request", asked)
        page.on("console", self._heard)

    def _opened(self, dialog: Dialog) -> None:
        self.found.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _heard(self, message: Any) -> None:
        is_answer = "status of 4" in message.text  # a page that is refused has its status
        if message.type == "error" and not is_answer:
            self.found.append(f"console: {message.text}")


class Dashboard:
    """All of it. `as_(role)` is a page of a browser in which a user of that role has logged in.

    `program`: what begins the command line that serves it.
    """

    def __init__(self, hub: Hub, browser: Browser, program: Sequence[str] = (str(IOTHUB),)) -> None:
        self.hub = hub
        self.browser = browser
        self.port = free_port()
        self.base = f"http://127.0.0.1:{self.port}"
        self.watched = Watched()
        self.log = hub.data_dir.parent / "dashboard.log"
        self.key = str(
            json.loads(hub.run("admin", "key", "create", "t", "--role", "platform-admin", "-o", "json").stdout)["key"]
        )
        command = [*program, "--data-dir", str(hub.data_dir), "admin", "serve", "--port", str(self.port)]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        self.pid = self._process.pid
        try:
            until(lambda: '"event": "ready"' in self.log.read_text(), "the dashboard is ready")
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise
        self._rest = httpx.Client(
            base_url=self.base + _API,
            headers={"Authorization": f"Bearer {self.key}"},
            timeout=PATIENCE_S,
            limits=httpx.Limits(max_keepalive_connections=0),  # the server may close one at any moment
            trust_env=False,
            verify=False,  # it would read every authority, and nothing here is https
        )
        self._contexts: dict[str, BrowserContext] = {}
        self._pages: list[Page] = []

    def as_(self, role: str, path: str = "/", *, tenant: str = "", phone: bool = False) -> Page:
        """Open a page. The login is made once for each role."""
        name = f"{role}-{tenant or 'platform'}"
        if name not in self._contexts:
            self._contexts[name] = self._logged_in(name, role, tenant)
        page = self._contexts[name].new_page()
        page.set_viewport_size(PHONE if phone else DESK)  # type: ignore[arg-type]
        page.set_default_timeout(_WAIT_MS)
        self._pages.append(page)
        self.watched.watch(page, self.base)
        self.open(page, path)
        return page

    def open(self, page: Page, path: str) -> None:
        """Go to a page, and wait until it has its socket, so that a click reaches the server."""
        page.goto(self.base + path)
        self._wait_for_socket(page)

    @contextmanager
    def following(self, page: Page) -> Iterator[None]:
        """Do what leads to another page, or to the same one again, and wait for it: two ways at once would stop each other."""
        with page.expect_navigation():
            yield
        self._wait_for_socket(page)

    @staticmethod
    def _wait_for_socket(page: Page) -> None:
        page.wait_for_selector("main")
        page.wait_for_function("() => window.socket && window.socket.connected")

    def anonymous(self) -> Page:
        page = self.browser.new_context().new_page()
        page.set_default_timeout(_WAIT_MS)
        self._pages.append(page)
        self.watched.watch(page, self.base)
        return page

    def close_pages(self) -> None:
        """Close what a test has opened; no page while it loads, which can hang Chromium."""
        for page in self._pages:
            if not page.is_closed():
                page.goto("about:blank")
                page.close()
        self._pages.clear()

    def _logged_in(self, name: str, role: str, tenant: str) -> BrowserContext:
        body = {"name": name, "role": role, "password": PASSWORD, **({"tenant": tenant} if tenant else {})}
        self("POST", "/users", body)
        context = self.browser.new_context()
        answer = context.request.post(
            self.base + "/login",
            form={"name": name, "password": PASSWORD},
            headers={"Origin": self.base},
            max_redirects=0,
        )
        assert answer.status == 303, answer.text()
        return context

    def log_in(self, page: Page, name: str, password: str = PASSWORD, path: str = "/login") -> None:
        page.goto(self.base + path)
        page.fill("#name", name)
        page.fill("#password", password)
        page.click("button")

    def __call__(self, method: str, path: str, body: object = None, *, status: int = 0) -> Any:
        """Ask REST as a platform administrator."""
        answer = self._rest.request(method, path, json=body)
        assert answer.status_code == status or (not status and answer.is_success), answer.text
        return answer.json() if answer.content else None

    def import_devices(self, tenant: str, text: str) -> None:
        """Create many devices of CSV at once."""
        path, headers = f"/tenants/{tenant}/devices:import", {"Content-Type": "text/csv"}
        self._rest.post(path, content=text, headers=headers).raise_for_status()

    def stop(self) -> None:
        self._rest.close()
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(PATIENCE_S) == 0


@contextmanager
def dashboard(hub: Hub, program: Sequence[str] = (str(IOTHUB),)) -> Iterator[Dashboard]:
    """Serve the dashboard of a hub that runs, and end it."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        served = Dashboard(hub, browser, program)
        try:
            yield served
        finally:
            browser.close()
            served.stop()
