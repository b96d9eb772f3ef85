"""How numbers, email addresses and URLs are written."""

from __future__ import annotations

MSISDN = "[1-9][0-9]{6,14}"
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_WORD = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,64}"
_TOP = "(?:[A-Za-z]{2,63}|xn--[A-Za-z0-9-]{2,59})"
EMAIL = f"{_WORD}(?:\\.{_WORD}){{0,8}}@(?:{_LABEL}\\.){{1,8}}{_TOP}"
_HEX = "[0-9A-Fa-f]{1,4}"
_IPV6 = f"\\[(?:::1|(?:{_HEX}:){{7}}{_HEX}|(?:{_HEX}:){{1,6}}:{_HEX})\\]"
_HOST = f"(?:{_LABEL}(?:\\.{_LABEL}){{0,8}}|{_IPV6})"
_PORT = "(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"

MSISDN_PATTERN = f"^{MSISDN}$"
EMAIL_PATTERN = f"^{EMAIL}$"
URL_PATTERN = f"^https?://{_HOST}(?::{_PORT})?(?:[/?#][!-~]{{0,2000}})?$"
