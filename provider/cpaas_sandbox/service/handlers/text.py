"""Encoding, length and pages of a text message, and the substitution of placeholders."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

# GSM 03.38, the basic set; each character is one septet.
_BASIC = frozenset(
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?"
    "¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
# The extension set: an escape and the character, two septets.
_EXTENDED = frozenset("^{}\\[~]|€\f")
_GSM = _BASIC | _EXTENDED


@dataclass(frozen=True, slots=True)
class Size:
    """A text's encoding, its length in units of that encoding, and its pages."""

    encoding: str
    length: int
    pages: int


# encoding -> (units in a single page, units in each page of several)
_PAGE = {"GSM-7": (160, 153), "UCS-2": (70, 67)}


def measure(text: str) -> Size:
    """Measure a text message: septets in GSM-7 where it fits, else UTF-16 code units in UCS-2."""
    if _GSM.issuperset(text):
        encoding, length = "GSM-7", len(text) + sum(map(text.count, _EXTENDED))
    else:
        encoding, length = "UCS-2", len(text.encode("utf-16-le")) // 2
    single, each = _PAGE[encoding]
    return Size(encoding, length, 1 if length <= single else -(-length // each))


def renderer(text: str, placeholder: str) -> Callable[[Mapping[str, Any]], str]:
    """Return a function that fills in one recipient's substitutions; an unknown placeholder stays as it is.

    :param placeholder: the setting ``placeholder_format``
    """
    before, after = (re.escape(mark) for mark in placeholder.split("name"))
    parts = re.split(f"({before})([^{{}}<>%\\[\\]]{{1,100}}?)({after})", text)
    if len(parts) == 1:
        return lambda substitutions: text

    def render(substitutions: Mapping[str, Any]) -> str:
        rendered = [parts[0]]
        for opening, name, closing, plain in zip(*(parts[n::4] for n in (1, 2, 3, 4)), strict=True):
            value = substitutions.get(name.strip(), opening + name + closing)
            rendered += [value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), plain]
        return "".join(rendered)

    return render
