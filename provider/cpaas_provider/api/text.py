"""How a text travels as SMS: its encoding, its length and the pages it is charged for (docs/contract.md, "SMS pages").

A local estimate made before a send; the ``meta.estimate`` of the service's answer wins afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Encoding = Literal["GSM-7", "UCS-2"]

_GSM7_BASIC = frozenset(
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?"
    "¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
_GSM7_ESCAPED = frozenset("^{}\\[~]|€\f")
_GSM7_ALL = _GSM7_BASIC | _GSM7_ESCAPED
_PAGE: dict[Encoding, tuple[int, int]] = {"GSM-7": (160, 153), "UCS-2": (70, 67)}


@dataclass(frozen=True, slots=True)
class SmsLength:
    """What a text costs in the air: ``units`` are septets (GSM-7) or 16-bit code units (UCS-2)."""

    encoding: Encoding
    units: int
    pages: int


def measure_sms(text: str) -> SmsLength:
    """Return the encoding, length and number of pages of a text after substitution.

    A character that needs two units is never split over two pages, so a page may end one unit early.
    """
    if _GSM7_ALL.issuperset(text):
        encoding: Encoding = "GSM-7"
        escapes = sum(map(text.count, _GSM7_ESCAPED))
        units = len(text) + escapes
        wide = _GSM7_ESCAPED if escapes else frozenset()
    else:
        encoding = "UCS-2"
        units = len(text.encode("utf-16-le", "surrogatepass")) // 2
        wide = frozenset(character for character in text if ord(character) > 0xFFFF)
    single, part = _PAGE[encoding]
    if units <= single:
        return SmsLength(encoding, units, 1)
    if not wide:
        return SmsLength(encoding, units, -(-units // part))
    return SmsLength(encoding, units, _pages_without_splits(text, wide, part))


def _pages_without_splits(text: str, wide: frozenset[str], part: int) -> int:
    pages, used = 1, 0
    for character in text:
        width = 2 if character in wide else 1
        if used + width > part:
            pages, used = pages + 1, 0
        used += width
    return pages


def substitute(content: str, substitutions: Mapping[str, object], placeholder_format: str = "{name}") -> str:
    """Return a text with its placeholders filled, as the service is taken to do it (docs/contract.md, placeholders).

    :param placeholder_format: how the placeholder called ``name`` is written, e.g. ``{name}`` or ``%name%``
    """
    values = {placeholder_format.replace("name", name): str(value) for name, value in substitutions.items()}
    if not values:
        return content
    # In one go, so that a value that looks like a placeholder stays as it is.
    return re.sub("|".join(map(re.escape, values)), lambda found: values[found[0]], content)
