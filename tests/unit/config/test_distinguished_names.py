"""Subjects of certificates as text: one form for each, exact comparison, nothing doubtful read as something else."""

from __future__ import annotations

import pytest

from iothub.base.distinguished_names import canonical, common_name, write
from iothub.base.errors import ConfigError


def test_subject_is_written_from_the_leaf_up() -> None:
    """RFC 4514: the other way round than in the certificate."""
    encoded = ((("countryName", "DE"),), (("organizationName", "Acme, Inc."),), (("commonName", "dev1"),))

    assert write(encoded) == "CN=dev1,O=Acme\\, Inc.,C=DE"


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("CN=dev1,O=Acme", "CN=dev1,O=Acme"),
        (" cn= dev1 , o=Acme ", "CN=dev1,O=Acme"),
        ("commonName=dev1,organizationName=Acme", "CN=dev1,O=Acme"),
        ("OU=b+CN=a", "CN=a+OU=b"),
        ("CN=a=b", "CN=a\\=b"),
        ("CN=Acm\\C3\\A9", "CN=Acmé"),
        ("CN=a\\2Cb", "CN=a\\,b"),
        ("CN=\\ a\\ ", "CN=\\ a\\ "),
        ("CN=a\\\\ ,O=x", "CN=a\\\\,O=x"),
        ("CN=\\#1", "CN=\\#1"),
    ],
)
def test_spellings_of_one_subject_have_one_form(text: str, form: str) -> None:
    """And the form is its own."""
    assert canonical(text) == form
    assert canonical(form) == form


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "character 1"),
        ("dev1", "character 1"),
        ("CN=a,", "character 6"),
        ("CN=a,,O=b", "character 6"),
        ("CN=", "empty"),
        ("CN=a;O=b", "character 1"),
        ('CN="a,b"', "character 1"),
        ("1.2.3=#0c0161", "character 1"),
        ("CN=#0c0161", "hexadecimal"),
        ("XY=a", "'XY' is not compared"),
        ("CN=a\\", "character 1"),
        ("CN=\\FF", "UTF-8"),
        ("CN=a\nb", "not printable"),
        ("CN=" + "a" * 600, "longer than 512"),
        ("subject=O = Acme, CN = dev1", "'subject' is not compared"),
        ("O = Acme, CN = dev1", "from the leaf up"),
    ],
)
def test_unreadable_subjects_are_refused_with_the_place(text: str, words: str) -> None:
    """One line; never a guess."""
    with pytest.raises(ConfigError, match=words):
        canonical(text)


@pytest.mark.parametrize(
    ("shown", "name"),
    [
        ("CN=dev1,O=Acme", "dev1"),
        ("O=Acme", None),
        ("CN=a,CN=b", None),
        ("=a,CN=b", "a,CN=b"),
        ("CN=a\\,CN\\=b", "a,CN=b"),
        ("nonsense", None),
    ],
)
def test_common_name_is_the_only_one(shown: str, name: str | None) -> None:
    """A bare name, told by a proxy, is a name however it looks."""
    assert common_name(shown) == name
