"""Every colour of text on every ground that it stands on can be read: the contrast that WCAG 2 asks for (AA), light and dark."""

from __future__ import annotations

import re

import pytest

from tests.architecture.tree import ROOT

LEAST = 4.5
STYLES = (ROOT / "iothub/dashboard/static/iothub.css").read_text()
LIGHT, DARK = (
    dict(re.findall(r"--io-([a-z-]+):(#[0-9a-f]+)", part))
    for part in re.findall(r"(?::root|body\.body--dark)\{(--io-ground.*?)\}", STYLES, re.DOTALL)
)
TEXTS = ("text", "soft", "accent", "good", "warn", "bad", "none")


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(digit * 2 for digit in colour[1:])
    parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, bright = sorted((luminance(one), luminance(other)))
    return (bright + 0.05) / (dark + 0.05)


def test_black_on_white_has_the_greatest_contrast() -> None:
    assert contrast("#000", "#ffffff") == 21


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("text", TEXTS)
def test_text_can_be_read_on_its_grounds(colours: dict[str, str], text: str) -> None:
    grounds = [name for name in ("ground", "box", "hover", f"{text}-soft") if name in colours]

    too_faint = {name: contrast(colours[text], colours[name]) for name in grounds}

    assert {name: ratio for name, ratio in too_faint.items() if ratio < LEAST} == {}
