"""Starts a hub with tenant "demo" in `.demo/` of the checkout and prints how to connect: `make run`.

Uses only the `iothub` command, as a person would.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IOTHUB = Path(sys.executable).parent / "iothub"
DEVICES = ("sensor", "console")
START_TIMEOUT_S = 60.0
API_PORT = 8081
API_TIMEOUT_S = 20.0  # the hub is ready before, and stays so whatever becomes of the API
ADMIN = "admin"
CONNECTIONS = (
    500  # enough to try the hub, and few enough for the file descriptors of any machine: no warning about them
)


def iothub(data_dir: Path, *words: str, secret: str = "") -> None:
    command = [str(IOTHUB), "--data-dir", str(data_dir), *words]
    done = subprocess.run(command, input=secret, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit(
            f"make run: `iothub {' '.join(words)}` failed ({done.returncode}): {done.stderr.strip() or done.stdout.strip()}"
        )


def upgrade(data_dir: Path) -> None:
    """A directory that an older version made is brought up to date; nothing happens to any other."""
    status = [str(IOTHUB), "--data-dir", str(data_dir), "db", "status", "-o", "json"]
    found = subprocess.run(status, capture_output=True, check=False)
    if found.returncode == 0 and json.loads(found.stdout)["state"] == "old":
        iothub(data_dir, "db", "upgrade")


def accounts_of(data_dir: Path) -> dict[str, str]:
    """Create data directory, tenant and devices on the first run; afterwards read their secrets back."""
    path = data_dir / "demo-secrets.json"
    upgrade(data_dir)
    if path.exists():
        return dict(json.loads(path.read_text()))
    sys.stdout.write(f"creating {data_dir.name} with the tenant demo and two devices ...\n")
    sys.stdout.flush()
    if not (data_dir / "iothub.toml").exists():
        iothub(data_dir, "init")
    shown = subprocess.run(
        [str(IOTHUB), "--data-dir", str(data_dir), "tenant", "show", "demo"], capture_output=True, check=False
    )
    if shown.returncode != 0:
        iothub(data_dir, "tenant", "create", "demo", "--plan", "unlimited")
    accounts = {device: secrets.token_urlsafe(12).replace("-", "x") for device in DEVICES}
    for device, secret in accounts.items():
        found = subprocess.run(
            [str(IOTHUB), "--data-dir", str(data_dir), "device", "show", "demo", device],
            capture_output=True,
            check=False,
        )
        if found.returncode == 0:
            iothub(data_dir, "device", "delete", "demo", device, "--yes")
        iothub(data_dir, "device", "create", "demo", device, "--password-stdin", secret=secret)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(accounts, file)
    return accounts


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    """Return a port that nobody uses at this moment."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def wait_until_ready(hub: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if hub.poll() is not None:
            sys.exit(hub.returncode)
        if is_listening(port):
            return
        time.sleep(0.05)
    hub.terminate()
    sys.exit(f"make run: the hub did not listen on port {port} within {START_TIMEOUT_S:.0f} s")


def welcome(port: int, accounts: dict[str, str]) -> str:
    secret_of = accounts.__getitem__
    return f"""
The hub is running: MQTT 3.1, 3.1.1 and 5.0 on 127.0.0.1:{port}, tenant "demo", plan "unlimited", data in .demo/.
In a second terminal, subscribe:

mosquitto_sub -h 127.0.0.1 -p {port} -u demo/console -P {secret_of("console")} -i console -c -q 1 -t 'room/#' -v

and in a third one, publish:

mosquitto_pub -h 127.0.0.1 -p {port} -u demo/sensor -P {secret_of("sensor")} -i sensor -q 1 -t room/temperature -m 21.5

Stop the subscriber, publish again, restart it: nothing is lost. To administer the hub: .venv/bin/iothub --data-dir .demo --help
Ctrl-C stops the hub; `make run` starts it again with its data.
"""


def api_of(hub: subprocess.Popen[bytes], data_dir: Path) -> dict[str, str]:
    """Return what the REST API beside the hub has noted: `address`, or `cause`; nothing, if there is none."""
    deadline = time.monotonic() + API_TIMEOUT_S
    while hub.poll() is None and time.monotonic() < deadline:
        try:
            return dict(json.loads((data_dir / "api.json").read_text()))
        except (OSError, ValueError):
            time.sleep(0.1)
    return {}


def admin_password(data_dir: Path) -> str:
    """Create the user who may do everything, and return the password; "": the user is there already, and nobody knows it but a hash."""
    words = ["admin", "user", "create", ADMIN, "--role", "platform-admin", "--generate", "-o", "json"]
    made = subprocess.run([str(IOTHUB), "--data-dir", str(data_dir), *words], capture_output=True, check=False)
    return str(json.loads(made.stdout)["password"]) if made.returncode == 0 else ""


def api_welcome(api: dict[str, str], password: str) -> str:
    if not api:
        return ""
    if "address" not in api:
        return f"\nThe REST API does not run: {api.get('cause')}\n"
    change = f".venv/bin/iothub --data-dir .demo admin user set-password {ADMIN}"
    if password:
        how = f"user {ADMIN}, password {password}\nThe password is shown this once and stays valid; to set your own: {change}"
    else:
        how = f"user {ADMIN}, password as the first run printed it, or set another: {change}"
    return f"\nDashboard and REST API: {api['address']}, {how}\n"


def port_of(word: str) -> int:
    if not (word.isascii() and word.isdecimal() and len(word) <= 5 and 1 <= int(word) <= 65_535):
        sys.exit(f"make run: PORT={word} is not a port: expected a number from 1 to 65535, such as make run PORT=1884")
    return int(word)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", default="1883")
    parser.add_argument("--workers", default="1", help="number of workers, or auto")
    parser.add_argument("--data-dir", type=Path, default=ROOT / ".demo")
    parser.add_argument("--api-port", type=int, default=API_PORT, help="of the REST API; any free one if it is in use")
    options = parser.parse_args()
    port = port_of(options.port)
    if is_listening(port):
        sys.exit(
            f"make run: port {port} of 127.0.0.1 is already in use; choose another one: make run PORT={port % 65_535 + 1}"
        )
    accounts = accounts_of(options.data_dir)
    sys.stdout.write("starting the hub ...\n")
    sys.stdout.flush()
    api_port = 0 if is_listening(options.api_port) else options.api_port
    settings = (
        f"listeners.tcp.port={port}",
        f"listeners.tcp.max_connections={CONNECTIONS}",
        f"admin.port={api_port}",
        f"http.port={free_port()}",  # the dashboard's charts are of the hub's metrics
    )
    flags = [word for setting in settings for word in ("--set", setting)]
    command = [str(IOTHUB), "--data-dir", str(options.data_dir), "serve", "--workers", options.workers, *flags]
    # A terminal sends Ctrl-C to everybody in the group: the hub must hear of it once, or it ends at once, without DISCONNECT.
    hub = subprocess.Popen(command, process_group=0)
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, lambda *_: hub.poll() is None and hub.send_signal(signal.SIGTERM))
    wait_until_ready(hub, port)
    sys.stdout.write(welcome(port, accounts))
    sys.stdout.flush()
    if os.environ.get("IOTHUB_ADMIN__ENABLED") != "off":
        api = api_of(hub, options.data_dir)
        sys.stdout.write(api_welcome(api, admin_password(options.data_dir) if "address" in api else ""))
        sys.stdout.flush()
    return hub.wait()


if __name__ == "__main__":
    sys.exit(main())
