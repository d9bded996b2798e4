"""Write `ops/kubernetes/iothub.yaml` from the chart with its usual values: `.venv/bin/python ops/helm/render.py [HELM]`.

The first lines have a hash of the chart, so that `make check` notices a chart that was changed without this, on machines that have no helm.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHART = HERE / "iothub"
RENDERED = HERE.parent / "kubernetes/iothub.yaml"
KUBERNETES = "1.34"
HEAD = """\
# Written by ops/helm/render.py: change the chart in ops/helm/iothub, not this file. Chart: {hash}
#
# Three linked hubs on Kubernetes, for who does not use Helm. Servers for accounts, queues and the log are elsewhere: the ConfigMap has their
# addresses. docs/guide/cluster.md has the steps; in short, with the files of `iothub init` and `iothub cluster`:
#
#   kubectl create secret generic iothub --from-file=hub-0/pepper --from-file=accounts-url=hub-0/accounts.url --from-file=redis-password
#   kubectl create secret generic iothub-links --from-file=authority/ca.pem \\
#     --from-file=0.pem=for-0/cert.pem --from-file=0.key=for-0/key.pem --from-file=1.pem=for-1/cert.pem --from-file=1.key=for-1/key.pem ...
#   kubectl create secret tls iothub-tls --cert=cert.pem --key=key.pem
#
# Change: the image, the host names, the storage class, the memory. `ca-key.pem` stays out of the cluster.
"""


def hash_of_chart() -> str:
    """Return what changes with every file of the chart."""
    found = hashlib.sha256()
    for path in sorted(path for path in CHART.rglob("*") if path.is_file()):
        found.update(str(path.relative_to(CHART)).encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def rendered(helm: str) -> str:
    """Return the whole file. Raises CalledProcessError: the chart cannot be rendered."""
    command = [helm, "template", "iothub", str(CHART), "--kube-version", KUBERNETES]
    objects = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return HEAD.format(hash=hash_of_chart()) + objects


if __name__ == "__main__":
    RENDERED.write_text(rendered(sys.argv[1] if len(sys.argv) > 1 else "helm"))
