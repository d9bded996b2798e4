"""Helm on the chart, kubeconform on the Kubernetes files, and Prometheus on the alert rules: programs that `ops/go_tools.sh` builds in minutes."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.architecture.tree import ROOT

TOOLS = ROOT / ".venv/go"
CHART = ROOT / "ops/helm/iothub"
RENDER = runpy.run_path(str(ROOT / "ops/helm/render.py"))
WEB_SOCKET = {
    "webSocket": {"enabled": True},
    "ingress": {"enabled": True, "className": "nginx", "tlsSecret": "web", "annotations": {"a": "b"}},
}
VALUES: dict[str, dict[str, Any]] = {
    "usual": {},
    "WebSocket": WEB_SOCKET,
    "one hub": {
        "replicaCount": 1,
        "pdb": {"enabled": False},
        "networkPolicy": {"enabled": False},
        "topologySpread": {"enabled": False},
        "service": {"type": "ClusterIP", "externalTrafficPolicy": ""},
        "persistence": {"storageClass": "fast"},
    },
    "placed": {
        "image": {"tag": "1"},
        "imagePullSecrets": [{"name": "registry"}],
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "mqtt", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "podAnnotations": {"a": "b"},
        "metrics": {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}},
    },
}


def run(program: str, *words: object) -> subprocess.CompletedProcess[str]:
    command = [str(TOOLS / program), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env={**os.environ})


def rendered(tmp_path: Path, values: dict[str, Any], release: str = "iothub") -> subprocess.CompletedProcess[str]:
    file = tmp_path / "values.yaml"
    file.write_text(json.dumps(values))
    return run("helm", "template", release, CHART, "--values", file, "--kube-version", RENDER["KUBERNETES"])


@pytest.mark.parametrize("name", VALUES)
def test_chart_passes_the_linter(tmp_path: Path, name: str) -> None:
    (tmp_path / "values.yaml").write_text(json.dumps(VALUES[name]))

    done = run("helm", "lint", "--strict", CHART, "--values", tmp_path / "values.yaml")

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", VALUES)
def test_objects_of_the_chart_are_valid(tmp_path: Path, name: str) -> None:
    """By the OpenAPI schema of the API server; a ServiceMonitor is the Prometheus operator's, and has none there."""
    done = rendered(tmp_path, VALUES[name], "mine")
    assert done.returncode == 0, done.stderr

    objects = [each for each in yaml.safe_load_all(done.stdout) if each]

    assert "StatefulSet" in {each["kind"] for each in objects}
    for each in objects:
        if each["kind"] != "ServiceMonitor":
            kubernetes_validate.validate(each, RENDER["KUBERNETES"], strict=True)
        assert each["metadata"]["name"].startswith("mine-iothub")


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The schemas that `kubernetes_validate` brings, where kubeconform looks for them: without names of their own, which lead to the network."""
    folder = tmp_path_factory.mktemp("schemas")
    package = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
    for file in (package / f"v{RENDER['KUBERNETES']}.0-local-strict").glob("*.json"):
        schema = json.loads(file.read_text().replace('"/api/_definitions.json#', '"_definitions.json#'))
        schema.pop("$id", None)
        (folder / file.name).write_text(json.dumps(schema))
    return folder


def conform(schemas: Path, file: Path) -> subprocess.CompletedProcess[str]:
    where = f"{schemas}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    return run("kubeconform", "-strict", "-summary", "-skip", "ServiceMonitor", "-schema-location", where, file)


@pytest.mark.parametrize("file", ["ops/kubernetes/iothub.yaml", "ops/schedules/kubernetes-cronjob.yaml"])
def test_kubernetes_file_conforms(schemas: Path, tmp_path: Path, file: str) -> None:
    """A field that there is not is found, so it has looked."""
    written = (ROOT / file).read_text()
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(written.replace("\nspec:", "\nspec:\n  unheardOf: 1", 1))

    done, refused = conform(schemas, ROOT / file), conform(schemas, wrong)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "Invalid: 0, Errors: 0, Skipped: 0" in done.stdout
    assert refused.returncode != 0
    assert "unheardOf" in refused.stdout


@pytest.mark.parametrize("name", VALUES)
def test_objects_of_the_chart_conform(schemas: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "rendered.yaml").write_text(rendered(tmp_path, VALUES[name]).stdout)

    done = conform(schemas, tmp_path / "rendered.yaml")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "Invalid: 0, Errors: 0" in done.stdout


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"replicas": 3}, "replicas"),
        ({"replicaCount": 0}, "replicaCount"),
        ({"ingress": {"enabled": True}}, "needs webSocket.enabled"),
    ],
)
def test_wrong_values_are_refused_by_name(tmp_path: Path, values: dict[str, Any], why: str) -> None:
    done = rendered(tmp_path, values)

    assert done.returncode != 0
    assert why in done.stderr


def test_kubernetes_file_is_what_the_chart_renders() -> None:
    assert (ROOT / "ops/kubernetes/iothub.yaml").read_text() == RENDER["rendered"](str(TOOLS / "helm"))


def test_prometheus_takes_the_alert_rules() -> None:
    """And they fire when they should: `iothub-alerts-test.yaml`."""
    for command in ("check", "test"):
        file = "iothub-alerts.yaml" if command == "check" else "iothub-alerts-test.yaml"
        done = run("promtool", command, "rules", ROOT / "ops/monitoring" / file)

        assert done.returncode == 0, done.stdout + done.stderr
