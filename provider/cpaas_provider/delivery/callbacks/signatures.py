"""How the service signs what it sends to the account's webhook: Base64 of HMAC-SHA512 over the body as it came."""

from __future__ import annotations

import functools
import hashlib
import hmac
import re
from base64 import b64encode

from cpaas_provider.delivery.tracking.hashing import update_in_chunks

_FORM = re.compile(r"[A-Za-z0-9+/]{86}==")


def sign(raw: bytes, secret: str) -> str:
    """Return the signature of a body."""
    hashed = _keyed(secret).copy()
    update_in_chunks(hashed, raw)
    return b64encode(hashed.digest()).decode()


# To begin with a key takes as long as a report.
@functools.lru_cache(maxsize=64)
def _keyed(secret: str) -> hmac.HMAC:
    return hmac.new(secret.encode(), digestmod=hashlib.sha512)


def has_form(signature: str | None) -> bool:
    """Tell whether a text has the form of a signature, which shows before there is a body."""
    return signature is not None and _FORM.fullmatch(signature.strip()) is not None


def verify(raw: bytes, signature: str | None, secret: str) -> bool:
    """Tell, in constant time, whether a body was signed with the secret; without either nothing was.

    :param signature: what the header says; ``None`` where it is missing
    """
    if not signature or not secret:
        return False
    return hmac.compare_digest(signature.strip().encode(errors="replace"), sign(raw, secret).encode())
