"""The files of links' certificates: what they are called, where a hub has its own, and how a certificate names its node.

Opens nothing and loads no cryptography: `iothub.peers.certificates` does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

CA_FILE, CA_KEY_FILE = "ca.pem", "ca-key.pem"
CERTIFICATE_FILE, KEY_FILE = "cert.pem", "key.pem"
NODE = "urn:iothub:node:"  # begins the URI that names a certificate's node


@dataclass(frozen=True, slots=True)
class LinkFiles:
    """Where a hub has what its links need."""

    ca: Path
    certificate: Path
    key: Path


def node_of(certificate: Mapping[str, object]) -> int | None:
    """Return the node number of a verified certificate (`ssl.SSLObject.getpeercert`); None: it is for no node."""
    names = cast("Sequence[tuple[str, str]]", certificate.get("subjectAltName", ()))
    return only_node([value for kind, value in names if kind == "URI"])


def only_node(uris: Sequence[str]) -> int | None:
    """Return the node that a certificate with these URIs is for; one for several nodes is for none."""
    nodes = [uri.removeprefix(NODE) for uri in uris if uri.startswith(NODE)]
    return int(nodes[0]) if len(nodes) == 1 and re.fullmatch("0|[1-9][0-9]{0,4}", nodes[0]) else None
