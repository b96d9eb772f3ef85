"""Phone look-up: the same number always gets the same answer (INTERFACE.md sections 2.6 and 4.14)."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import phonenumbers

from cpaas_provider.sandbox.core.context import Sandbox
from cpaas_provider.sandbox.service.http import Request

_OPERATORS = {"NG": ("MTN", "Airtel", "Glo", "9mobile"), "GH": ("MTN", "Telecel", "AT"), "KE": ("Safaricom", "Airtel")}
_ELSEWHERE = ("Mobile One", "Mobile Two", "Mobile Three")
_DND_PER_HUNDRED = 8
_PORTED_PER_HUNDRED = 5


def _country(phone: str) -> str | None:
    try:
        return phonenumbers.region_code_for_number(phonenumbers.parse(f"+{phone}"))
    except phonenumbers.NumberParseException:
        return None


def answer_for(phone: str) -> dict[str, Any]:
    """Derive the answer from a hash of the number; a number of no country has no `country`."""
    digest = hashlib.sha256(phone.encode()).digest()
    country = _country(phone)
    operators = _OPERATORS.get(country or "", _ELSEWHERE)
    answer: dict[str, Any] = {"msisdn": phone, "operator": operators[digest[0] % len(operators)]}
    if country:
        answer["country"] = country
    answer["ported"] = int.from_bytes(digest[1:3], "big") % 100 < _PORTED_PER_HUNDRED
    answer["dnd"] = int.from_bytes(digest[3:5], "big") % 100 < _DND_PER_HUNDRED
    return answer


def look_up(sandbox: Sandbox, request: Request) -> dict[str, Any]:
    """Answer GET /lookup/phone; what was seeded for a number goes before what is derived."""
    phone = request.body["phone"]
    charge = sandbox.account.charge(sandbox.account.prices["lookup"]).amount
    seeded = sandbox.database.row("SELECT answer FROM seeded_lookups WHERE phone = ?", [phone])
    answer = answer_for(phone) | (json.loads(seeded["answer"]) if seeded else {})
    values = [phone, json.dumps(answer), charge, sandbox.clock.now()]
    sandbox.database.execute("INSERT INTO lookups (recipient, answer, charge, created) VALUES (?, ?, ?, ?)", values)
    sandbox.counters.add("lookups")
    return answer
