"""Phone lookup: the same number always has the same result (contract.md 2.6 and 4.14)."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import phonenumbers

from cpaas_sandbox.core.context import Sandbox
from cpaas_sandbox.service.http import Request

_OPERATORS = {"NG": ("MTN", "Airtel", "Glo", "9mobile"), "GH": ("MTN", "Telecel", "AT"), "KE": ("Safaricom", "Airtel")}
_OTHER_OPERATORS = ("Mobile One", "Mobile Two", "Mobile Three")
_DND_PER_HUNDRED = 8
_PORTED_PER_HUNDRED = 5


def _country(phone: str) -> str | None:
    try:
        return phonenumbers.region_code_for_number(phonenumbers.parse(f"+{phone}"))
    except phonenumbers.NumberParseException:
        return None


def answer_for(phone: str) -> dict[str, Any]:
    """Return the result derived from a hash of the number; without a known country, there is no ``country``."""
    digest = hashlib.sha256(phone.encode()).digest()
    country = _country(phone)
    operators = _OPERATORS.get(country or "", _OTHER_OPERATORS)
    answer: dict[str, Any] = {"msisdn": phone, "operator": operators[digest[0] % len(operators)]}
    if country:
        answer["country"] = country
    answer["ported"] = int.from_bytes(digest[1:3], "big") % 100 < _PORTED_PER_HUNDRED
    answer["dnd"] = int.from_bytes(digest[3:5], "big") % 100 < _DND_PER_HUNDRED
    return answer


def look_up(sandbox: Sandbox, request: Request) -> dict[str, Any]:
    """Answer GET /lookup/phone; seeded fields replace the derived ones, and a null removes one."""
    phone = request.fields["phone"]
    charge = sandbox.account.charge(sandbox.account.prices["lookup"]).amount
    seeded = sandbox.database.row("SELECT answer FROM seeded_lookups WHERE phone = ?", [phone])
    merged = answer_for(phone) | (json.loads(seeded["answer"]) if seeded else {})
    answer = {name: value for name, value in merged.items() if value is not None}
    values = [phone, json.dumps(answer), charge, sandbox.clock.now()]
    sandbox.database.execute("INSERT INTO lookups (recipient, answer, charge, created) VALUES (?, ?, ?, ?)", values)
    sandbox.counters.add("lookups")
    return answer
