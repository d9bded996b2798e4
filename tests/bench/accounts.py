"""Make the accounts of a comparison, the same for both brokers: one tenant, many devices, one secret; and a certificate.

Knows no protocol and starts no broker. Most devices have a generated secret's stored form (a keyed hash, as `device create` makes it), the
`CHOSEN` ones an argon2 password that `iothub device import` hashed. Mosquitto gets the same names in a `password_file`.
"""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
from pathlib import Path

from iothub.config.datadir import DataDir
from iothub_migrations.schema import SCHEMA_VERSION
from iothub_services.auth.secrets import hash_generated
from iothub_tenants.accounts import tenants
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.devices import Credential, CredentialForm, insert_devices
from iothub_tenants.accounts.store import AccountStore, ChangeKind

TENANT = "t0"  # mqttload's `-u t{t}/dev{k}` with one tenant
SECRET = "secret"
CHOSEN = 50  # names pw0, pw1, ...
MANY, FEW = 5_000, 64  # devices
IOTHUB = str(Path(sys.executable).parent / "iothub")


def make(folder: Path, devices: int) -> None:
    """Fill `folder` with `hub/` (a data directory to copy), `passwords`, `cert.pem` and `key.pem`, unless it has them."""
    marker, made = folder / "made", f"{devices} devices, schema {SCHEMA_VERSION}"
    if marker.exists() and marker.read_text() == made:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    names = [f"dev{number}" for number in range(devices)]
    chosen = [f"pw{number}" for number in range(CHOSEN)]
    make_hub(folder / "hub", names, _csv(folder / "chosen.csv", chosen))
    _make_password_file(folder / "passwords", names + chosen)
    _run(IOTHUB, "cert", "self-signed", str(folder))
    marker.write_text(made)


def make_hub(data_dir: Path, generated: list[str], chosen: Path | None = None) -> None:
    """Make a data directory with the tenant and these devices. `chosen`: a file for `iothub device import`."""
    hub = (IOTHUB, "--data-dir", str(data_dir))
    _run(*hub, "init")
    _run(*hub, "tenant", "create", TENANT, "--plan", "unlimited")
    if chosen is not None:
        _run(*hub, "device", "import", TENANT, str(chosen))
    pepper = DataDir(data_dir).pepper()
    store = AccountStore(sqlite_url(data_dir / "accounts.db"), pepper=pepper)
    with store.write() as writer:
        owner = tenants.living(writer.connection, TENANT)
        accounts = [(name, Credential(CredentialForm.GENERATED, hash_generated(SECRET, pepper))) for name in generated]
        insert_devices(writer, owner.id, accounts)
        writer.changed(owner.id, ChangeKind.DEVICE, "*")
    store.close()


def _csv(path: Path, names: list[str]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("name", "password"), *((name, SECRET) for name in names)])
    return path


def _make_password_file(path: Path, names: list[str]) -> None:
    path.write_text("".join(f"{TENANT}/{name}:{SECRET}\n" for name in names))
    _run("mosquitto_passwd", "-U", str(path))
    path.chmod(0o644)


def _run(*command: str) -> None:
    if shutil.which(command[0]) is None:
        sys.exit(f"bench: {command[0]} is not installed: install Mosquitto, whose package has it")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(
            f"bench: `{' '.join(command)}` failed ({done.returncode}): {done.stderr.strip() or done.stdout.strip()}"
        )
