"""`compose.cluster.yaml` and `ops/kubernetes/iothub.yaml`: formats by their specifications' schemas, settings by the product's own check.

No container is started. What the containers would run to make the hubs' data directories is run, with accounts in a file.
"""

from __future__ import annotations

import json
import os
import runpy
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from compose_spec import PyCompose

from iothub.base.units import parse_duration
from iothub.config.sections import Config
from iothub.testing.certificates import Authority
from tests.support.hubs.hub import iothub

ROOT = Path(__file__).resolve().parents[3]
CLUSTER = ROOT / "ops/cluster"
HUBS = ("hub-1", "hub-2", "hub-3")
PROGRAMS = Path(sys.executable).parent
KUBERNETES = "1.34"
NO_HUB = 7  # exit code: understood, but nothing runs there


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "compose.cluster.yaml").read_text()))


@pytest.fixture(scope="module")
def objects() -> dict[str, Any]:
    """Each object of the example by its kind; two services by their names."""
    found = list(yaml.safe_load_all((ROOT / "ops/kubernetes/iothub.yaml").read_text()))
    return {each["metadata"]["name"] if each["kind"] == "Service" else each["kind"]: each for each in found}


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the script of the container `setup` has made three data directories, twice."""
    folder = tmp_path_factory.mktemp("cluster")
    url = f"sqlite:///{folder}/accounts.db"
    command = [
        "sh",
        str(CLUSTER / "setup.sh"),
        str(CLUSTER / "iothub.toml"),
        url,
        str(folder / "authority"),
        str(folder),
        "3",
    ]
    environment = {**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}"}
    for _ in range(2):
        subprocess.run(command, check=True, env=environment, capture_output=True)
    return folder


@pytest.mark.parametrize("name", ["compose.yaml", "compose.cluster.yaml"])
def test_compose_file_is_valid(name: str) -> None:
    """By the Compose Specification's schema; merge keys are YAML's."""
    _parse(yaml.safe_load((ROOT / name).read_text())).to_spec()


def test_schema_finds_a_wrong_key(compose: dict[str, Any]) -> None:
    wrong = {**compose, "services": {"hub-1": {**compose["services"]["hub-1"], "depend_on": {}}}}

    with pytest.raises(ValueError, match="depend_on"):
        _parse(wrong)


def test_servers_are_those_of_the_other_file(compose: dict[str, Any]) -> None:
    """Not a second copy of their settings; each is there with the volumes that it names."""
    others = yaml.safe_load((ROOT / "compose.yaml").read_text())
    servers = ("kafka", "hbase", "redis", "postgresql")

    for name in servers:
        assert compose["services"][name] == {"extends": {"file": "compose.yaml", "service": name}}
    named = {mount.partition(":")[0] for name in servers for mount in others["services"][name]["volumes"]}
    assert {name for name in named if name[0] != "."} <= set(compose["volumes"])


def test_every_image_is_pinned(compose: dict[str, Any]) -> None:
    images = [service["image"] for service in compose["services"].values() if "image" in service]

    assert images
    assert all(":" in image and not image.endswith(":latest") for image in images)


def test_compose_hubs_are_ready_one_by_one_before_clients_come(compose: dict[str, Any]) -> None:
    services = compose["services"]

    assert set(services["haproxy"]["depends_on"]) == set(HUBS)
    for name in HUBS:
        assert "/readyz" in services[name]["healthcheck"]["test"]
        assert services[name]["volumes"] == [f"{name}:/data"]


@pytest.mark.parametrize("name", HUBS)
def test_settings_of_each_compose_hub_are_valid(compose: dict[str, Any], directories: Path, name: str) -> None:
    """The file that `setup` copies, with the environment of the container."""
    environment = compose["services"][name]["environment"]

    checked = iothub(directories / name, "config", "check", environment=environment)

    assert checked.stderr == "the configuration is valid\n"


def test_compose_hubs_differ_where_they_must(compose: dict[str, Any], directories: Path) -> None:
    """Addresses and numbers are each hub's own; accounts and their key are common; a certificate is of the hub's number."""
    environments = [compose["services"][name]["environment"] for name in HUBS]
    peppers = {(directories / name / "pepper").read_bytes() for name in HUBS}
    modes = {stat.S_IMODE((directories / name / "cluster/key.pem").stat().st_mode) for name in HUBS}

    for key in environments[0]:
        assert len({environment[key] for environment in environments}) == len(HUBS), key
    assert len(peppers) == 1
    assert modes == {0o600}
    assert not any((directories / name / "cluster/ca-key.pem").exists() for name in HUBS)


def test_balancer_leads_to_every_hub(compose: dict[str, Any]) -> None:
    text = (CLUSTER / "haproxy.cfg").read_text()

    for name in HUBS:
        assert f"server {name} {compose['services'][name]['environment']['IOTHUB_LISTENERS__TCP__BIND']}:1883" in text
    assert "send-proxy-v2" in text  # the hubs refuse connections of proxy_trusted addresses without it


def test_compose_waits_longer_than_a_hub_drains(compose: dict[str, Any]) -> None:
    drain_s = parse_duration(tomllib.loads((CLUSTER / "iothub.toml").read_text())["cluster"]["drain_on_stop"])

    assert parse_duration(compose["services"]["hub-1"]["stop_grace_period"]) > drain_s + Config().node.stop_timeout_s


def test_containerfile_passes_the_linter() -> None:
    done = subprocess.run(
        [PROGRAMS / "hadolint", CLUSTER / "Containerfile"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_containerfile_copies_what_there_is(compose: dict[str, Any]) -> None:
    """Nothing of it is left out of the build by `.dockerignore`, and every target that Compose builds is a stage."""
    text = (CLUSTER / "Containerfile").read_text()
    copied = [line.split()[-2] for line in text.splitlines() if line.startswith("COPY") and "--from" not in line]
    stages = {line.split()[-1] for line in text.splitlines() if line.startswith("FROM")}
    targets = {service["build"]["target"] for service in compose["services"].values() if "build" in service}

    assert all((ROOT / name).exists() for name in copied)
    assert targets <= stages


@pytest.mark.parametrize(
    "kind", ["ConfigMap", "iothub-links", "iothub", "PodDisruptionBudget", "NetworkPolicy", "StatefulSet"]
)
def test_kubernetes_object_is_valid(objects: dict[str, Any], kind: str) -> None:
    """By the OpenAPI schema of the API server; no unknown field."""
    kubernetes_validate.validate(objects[kind], KUBERNETES, strict=True)


def test_kubernetes_file_is_of_the_chart() -> None:
    """After a change of ops/helm/iothub run ops/helm/render.py; tests/nightly renders it and compares every line."""
    chart = runpy.run_path(str(ROOT / "ops/helm/render.py"))

    assert (
        (ROOT / "ops/kubernetes/iothub.yaml")
        .read_text()
        .startswith(chart["HEAD"].format(hash=chart["hash_of_chart"]()))
    )


def test_kubernetes_schema_finds_a_wrong_field(objects: dict[str, Any]) -> None:
    wrong = {**objects["StatefulSet"], "spec": {**objects["StatefulSet"]["spec"], "servicename": "iothub-links"}}

    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, KUBERNETES, strict=True)


def test_night_of_kubernetes_is_valid() -> None:
    job = yaml.safe_load((ROOT / "ops/schedules/kubernetes-cronjob.yaml").read_text())

    kubernetes_validate.validate(job, KUBERNETES, strict=True)


def test_kubernetes_parts_fit_together(objects: dict[str, Any]) -> None:
    """Volumes, ports, labels and names that one object has and another one means."""
    stateful, pod = objects["StatefulSet"]["spec"], objects["StatefulSet"]["spec"]["template"]
    (container,), (first,) = pod["spec"]["containers"], pod["spec"]["initContainers"]
    labels = pod["metadata"]["labels"]
    ports = {port["name"] for port in container["ports"]}
    volumes = {volume["name"] for volume in pod["spec"]["volumes"]} | {
        claim["metadata"]["name"] for claim in stateful["volumeClaimTemplates"]
    }

    assert stateful["serviceName"] == objects["iothub-links"]["metadata"]["name"]
    assert objects["iothub-links"]["spec"]["publishNotReadyAddresses"] is True
    for service in ("iothub-links", "iothub"):
        assert objects[service]["spec"]["selector"].items() <= labels.items()
        assert {port["targetPort"] for port in objects[service]["spec"]["ports"]} <= ports
    assert {mount["name"] for each in (container, first) for mount in each["volumeMounts"]} == volumes
    assert {container[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe")} == {"/livez"}
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_kubernetes_pod_has_time_to_drain(objects: dict[str, Any], directories: Path) -> None:
    """What preStop takes at most and what a stop takes at most are together less than what the pod is given; the command is ours."""
    pod = objects["StatefulSet"]["spec"]["template"]["spec"]
    command = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    stop_s = tomllib.loads(objects["ConfigMap"]["data"]["iothub.toml"])["node"]["stop_timeout"]

    understood = iothub(directories / "hub-1", *command[1:], check=False)

    assert understood.returncode == NO_HUB, understood.stderr
    assert pod["terminationGracePeriodSeconds"] > parse_duration(
        command[command.index("--timeout") + 1]
    ) + parse_duration(stop_s)


@pytest.fixture(scope="module")
def mounts(objects: dict[str, Any], directories: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The volumes of the pods, as folders: what the operator has put into the secrets, and the ConfigMap's file."""
    folder = tmp_path_factory.mktemp("mounts")
    for name in ("settings", "secrets", "links", "tls", "data", "tmp"):
        (folder / name).mkdir()
    text = objects["ConfigMap"]["data"]["iothub.toml"]
    (folder / "settings/iothub.toml").write_text(text.replace("/tls/", f"{folder}/tls/"))
    (folder / "secrets/pepper").write_bytes((directories / "hub-1/pepper").read_bytes())
    (folder / "secrets/accounts-url").write_text(f"sqlite:///{directories}/accounts.db\n")
    (folder / "secrets/redis-password").write_text("secret\n")
    (folder / "links/ca.pem").write_bytes((directories / "authority/ca.pem").read_bytes())
    for number in range(objects["StatefulSet"]["spec"]["replicas"]):
        made = folder / f"made-{number}"
        iothub(folder, "cluster", "issue", str(number), "--ca", str(directories / "authority"), "--out", str(made))
        (made / "cert.pem").rename(folder / f"links/{number}.pem")
        (made / "key.pem").rename(folder / f"links/{number}.key")
    pair = Authority(folder).issue("iothub.example.com")
    Path(pair.cert_file).rename(folder / "tls/tls.crt")
    Path(pair.key_file).rename(folder / "tls/tls.key")
    (folder / "tls/tls.key").chmod(
        objects["StatefulSet"]["spec"]["template"]["spec"]["volumes"][-1]["secret"]["defaultMode"]
    )
    return folder


@pytest.mark.parametrize("ordinal", range(3))
def test_pod_of_each_ordinal_has_a_valid_hub(objects: dict[str, Any], mounts: Path, ordinal: int) -> None:
    """Its init container makes the data directory, also at a second start; the hub's settings are valid there."""
    pod = objects["StatefulSet"]["spec"]["template"]["spec"]
    (first,), (container,) = pod["initContainers"], pod["containers"]
    environment = _environment(container["env"], ordinal)
    data_dir = mounts / f"data-{ordinal}"
    script = first["args"][0]
    for name in ("settings", "secrets", "links"):
        script = script.replace(f"/{name}/", f"{mounts}/{name}/")

    for _ in range(2):
        subprocess.run(
            [*first["command"], script],
            check=True,
            capture_output=True,
            env={"PATH": f"{PROGRAMS}:{os.environ['PATH']}", **environment, "IOTHUB_DATA_DIR": str(data_dir)},
        )
    checked = iothub(data_dir, "config", "check", environment=environment)
    shown = iothub(data_dir, "config", "show", "--changed", environment=environment).stdout

    assert container["command"] == ["iothub", "serve"]
    *warnings, last = checked.stderr.splitlines()
    assert last == "the configuration is valid"
    assert all("listeners.tls.key_file" in warning for warning in warnings)  # Kubernetes leaves it to the pod's group
    assert f"node.number = {ordinal}\n" in shown or ordinal == 0
    assert f'cluster.advertise = "iothub-{ordinal}.iothub-links:7883"' in shown
    assert {stat.S_IMODE(file.stat().st_mode) & 0o077 for file in data_dir.rglob("*") if file.is_file()} == {0}


def _parse(compose: dict[str, Any]) -> PyCompose:
    """Raises ValueError: not as the specification says."""
    return PyCompose.from_json(json.dumps(compose))


def _environment(given: list[dict[str, Any]], ordinal: int) -> dict[str, str]:
    """What the kubelet makes of it."""
    fields = {"metadata.name": f"iothub-{ordinal}", "metadata.labels['apps.kubernetes.io/pod-index']": str(ordinal)}
    found: dict[str, str] = {}
    for each in given:
        text = each["value"] if "value" in each else fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
        found[each["name"]] = text.replace("$(POD)", fields["metadata.name"])
    return found
