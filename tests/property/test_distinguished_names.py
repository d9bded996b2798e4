"""Whatever a subject says, its text says exactly that: two subjects have one text only if they are one."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from iothub.base.distinguished_names import canonical, common_name, write
from iothub.base.errors import ConfigError
from tests.support.night import by_day

TYPES = st.sampled_from(["commonName", "organizationName", "countryName", "domainComponent", "userId"])
VALUES = st.one_of(
    st.text(st.characters(exclude_categories=("C", "Z"), include_characters=" "), min_size=1, max_size=12),
    st.text(' \\,+"<>;=#aC3', min_size=1, max_size=8),
)
SUBJECTS = st.lists(st.lists(st.tuples(TYPES, VALUES), min_size=1, max_size=2), min_size=1, max_size=4)


def meaning(subject: list[list[tuple[str, str]]]) -> list[list[tuple[str, str]]]:
    return [sorted(part) for part in subject]


@given(SUBJECTS, SUBJECTS)
@settings(max_examples=by_day(150, 300))
def test_different_subjects_have_different_texts(
    one: list[list[tuple[str, str]]], two: list[list[tuple[str, str]]]
) -> None:
    assert (write(one) == write(two)) == (meaning(one) == meaning(two))


@given(SUBJECTS)
@settings(max_examples=by_day(150, 300))
def test_text_is_read_back_as_it_was(subject: list[list[tuple[str, str]]]) -> None:
    """So a copied subject fits, and the common name is the one in the certificate."""
    text = write(subject)
    names = [value for part in subject for kind, value in part if kind == "commonName"]

    assert canonical(text) == text
    assert not text.startswith("=")
    assert common_name(text) == (names[0] if len(names) == 1 else None)


@given(st.text(max_size=40))
@settings(max_examples=by_day(150, 300))
def test_any_text_is_one_subject_or_refused(text: str) -> None:
    try:
        form = canonical(text)
    except ConfigError:
        return
    assert canonical(form) == form
