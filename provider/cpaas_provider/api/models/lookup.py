"""Phone lookup (contract.md 2.6, 4.14)."""

from __future__ import annotations

from cpaas_provider.api.models.base import Msisdn, ServiceWord, WireRequest, WireResource


class LookupPhoneRequest(WireRequest):
    """Body of ``GET /lookup/phone``."""

    phone: Msisdn


class PhoneLookup(WireResource):
    """The facts about a number; only ``msisdn`` is always set (contract.md 10)."""

    msisdn: str
    operator: ServiceWord | None = None
    country: ServiceWord | None = None
    ported: bool | None = None
    dnd: bool | None = None
