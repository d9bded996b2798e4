"""How each broker of `make bench` is started: the same accounts, the same certificate, a fresh data directory for every run.

Knows no workload. The dictionaries are what `load/runs.py` calls a broker; `{port}`, `{port2}`, `{dir}` are filled in by it.
"""

from __future__ import annotations

import getpass
from pathlib import Path

import accounts

IDENTITY = f"-u t{{t}}/dev{{k}} -P {accounts.SECRET}"
CHOSEN_IDENTITY = f"-u t{{t}}/pw{{k}} -P {accounts.SECRET}"
TLS = "--tls -p {port2}"
WEBSOCKET = "--ws -p {port2}"

_MOSQUITTO = """\
user {user}
listener {{port}} 127.0.0.1
{second}
allow_anonymous {anonymous}
password_file {folder}/passwords
persistence false
max_queued_messages 100000
max_inflight_messages 20
log_dest none
"""

Broker = dict[str, object]


def mosquitto(folder: Path, *, second: str = "", args: str = IDENTITY, anonymous: bool = False) -> Broker:
    """Mosquitto as the distribution installs it. `second`: lines of a second listener."""
    config = _MOSQUITTO.format(user=getpass.getuser(), second=second, folder=folder, anonymous=str(anonymous).lower())
    return {
        "start": "mosquitto -c {dir}/mosquitto.conf",
        "files": {"mosquitto.conf": config},
        "args": args,
        "version": "mosquitto -h",
    }


def iothub(folder: Path, *settings: str, args: str = IDENTITY, is_plain: bool = False, ready_text: str = "") -> Broker:
    """The hub of this checkout on a copy of the prepared data directory. `ready_text`: in its log once it may be loaded.

    Without the REST API: the start of its process would be counted as the hub's.
    """
    always = ("listeners.tcp.port={port}", "admin.enabled=off")
    chosen = " ".join(f"--set {setting}" for setting in (*always, *settings))
    serve = f"exec {accounts.IOTHUB} --data-dir {{dir}}/data serve {chosen}"
    twin = {"IOTHUB_PURE_PYTHON": "1"} if is_plain else {"IOTHUB_REQUIRE_COMPILED": "1"}
    return {
        "start": f'sh -c "cp -r {folder}/hub {{dir}}/data && {serve}"',
        "env": twin,
        "args": args,
        "version": f"{accounts.IOTHUB} --version",
        "ready_seconds": 60,
        "ready_text": ready_text,
    }


def roster(many: Path, few: Path) -> dict[str, Broker]:
    """All brokers by name. `few`: accounts for 64 devices, because Mosquitto 2.0 looks through its whole file at every CONNECT."""
    certificate = f"certfile {many}/cert.pem\nkeyfile {many}/key.pem"
    tls = f"listeners.tls.port={{port2}} listeners.tls.cert_file={many}/cert.pem listeners.tls.key_file={many}/key.pem"
    return {
        "mosquitto": mosquitto(many),
        "mosquitto-few": mosquitto(few),
        "mosquitto-few-chosen": mosquitto(few, args=CHOSEN_IDENTITY),
        "mosquitto-few-open": mosquitto(few, args="", anonymous=True),
        "mosquitto-ws": mosquitto(
            many, second="listener {port2} 127.0.0.1\nprotocol websockets", args=f"{IDENTITY} {WEBSOCKET}"
        ),
        "mosquitto-tls": mosquitto(many, second="listener {port2} 127.0.0.1\n" + certificate, args=f"{IDENTITY} {TLS}"),
        "iothub": iothub(many),
        "iothub-workers": iothub(many, "node.workers=2", "log.format=json", ready_text='"workers": 2'),
        "iothub-plain": iothub(many, is_plain=True),
        "iothub-few": iothub(few),
        "iothub-few-chosen": iothub(few, args=CHOSEN_IDENTITY),
        "iothub-ws": iothub(many, "listeners.ws.port={port2}", args=f"{IDENTITY} {WEBSOCKET}"),
        "iothub-tls": iothub(many, *tls.split(), args=f"{IDENTITY} {TLS}"),
    }
