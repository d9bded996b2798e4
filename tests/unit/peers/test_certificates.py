"""Certificates of links: whose they are, and every pair of files that a hub does not start with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from iothub.base.errors import ConfigError
from iothub.peers import certificates, link_files
from iothub.peers.certificates import Pem
from iothub.peers.link_files import LinkFiles


@pytest.fixture(scope="module")
def authority() -> Pem:
    return certificates.make_authority()


def written(directory: Path, authority: Pem, own: Pem) -> LinkFiles:
    files = LinkFiles(directory / "ca.pem", directory / "cert.pem", directory / "key.pem")
    files.ca.write_bytes(authority.certificate)
    files.certificate.write_bytes(own.certificate)
    files.key.write_bytes(own.key)
    return files


@pytest.mark.parametrize("node", [0, 7, 65535])
def test_certificate_of_a_node_is_loaded_by_that_node(tmp_path: Path, authority: Pem, node: int) -> None:
    files = written(tmp_path, authority, certificates.issue(authority, node, ["a.example", "192.0.2.1", "::1"], 30))

    loaded = certificates.load(files, node)

    assert (loaded.server.minimum_version.name, loaded.client.minimum_version.name) == ("TLSv1_3", "TLSv1_3")


@pytest.mark.parametrize(
    ("uris", "node"),
    [
        (["urn:iothub:node:7"], 7),
        (["https://elsewhere", "urn:iothub:node:0"], 0),
        ([], None),
        (["urn:iothub:node:07"], None),
        (["urn:iothub:node:"], None),
        (["urn:iothub:node:123456"], None),
        (["urn:iothub:node:1", "urn:iothub:node:2"], None),
    ],
)
def test_node_is_read_from_the_alternative_names(uris: list[str], node: int | None) -> None:
    """One number, written in one way; whoever could be two hubs is none."""
    assert link_files.node_of({"subjectAltName": tuple(("URI", uri) for uri in uris)}) == node


def test_authorities_may_follow_each_other(tmp_path: Path, authority: Pem) -> None:
    """While hubs get certificates of a new one, both are in the file."""
    files = written(tmp_path, authority, certificates.issue(authority, 1, [], 30))
    files.ca.write_bytes(certificates.make_authority().certificate + authority.certificate)

    certificates.load(files, 1)


Spoil = Callable[[LinkFiles, Pem], None]


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lambda files, _: files.ca.unlink(), r"cluster\.ca_file: .*No such file.*cluster issue"),
        (lambda files, _: files.certificate.write_text("x"), r"cluster\.certificate_file: .*contains no certificate"),
        (lambda files, _: files.key.unlink(), r"cluster\.key_file: .*No such file"),
        (
            lambda files, _: files.key.write_bytes(certificates.make_authority().key),
            r"cluster\.key_file: .*cannot be used",
        ),
        (
            lambda files, _: files.ca.write_bytes(certificates.make_authority().certificate),
            r"was not issued by the authority",
        ),
        (
            lambda files, ca: files.certificate.write_bytes(certificates.issue(ca, 2, [], 1).certificate),
            r"is the certificate of node 2, this hub is node 1",
        ),
        (lambda files, ca: files.certificate.write_bytes(ca.certificate), r"is the certificate of no node"),
        (
            lambda files, ca: files.certificate.write_bytes(certificates.issue(ca, 1, [], -1).certificate),
            r"expired on 20",
        ),
    ],
    ids=["no ca", "no certificate", "no key", "other key", "other ca", "other node", "no node", "expired"],
)
def test_files_that_do_not_fit_are_refused_before_a_start(
    tmp_path: Path, authority: Pem, spoil: Spoil, expected: str
) -> None:
    """By the setting and with what is wrong."""
    files = written(tmp_path, authority, certificates.issue(authority, 1, [], 30))
    spoil(files, authority)

    with pytest.raises(ConfigError, match=expected):
        certificates.load(files, 1)


def test_authority_that_is_none_issues_nothing(authority: Pem) -> None:
    other = certificates.make_authority()

    with pytest.raises(ConfigError, match="no authority"):
        certificates.issue(Pem(b"x", b"y"), 1, [], 1)
    with pytest.raises(ConfigError, match=r"ca-key\.pem is not the key of ca\.pem"):
        certificates.issue(Pem(authority.certificate, other.key), 1, [], 1)
