"""The service's signatures of requests to the account's webhook: HMAC-SHA512 of the raw body, in Base64."""

from __future__ import annotations

import functools
import hashlib
import hmac
import re
from base64 import b64encode

from cpaas_provider.delivery.hashing import digest_in_chunks

_FORM = re.compile(r"[A-Za-z0-9+/]{86}==")


def sign(raw: bytes, secret: str) -> str:
    """Return the signature of a body."""
    return b64encode(digest_in_chunks(_keyed(secret).copy(), raw)).decode()


# Cached, because to set up the key takes as long as to hash a report.
@functools.lru_cache(maxsize=64)
def _keyed(secret: str) -> hmac.HMAC:
    return hmac.new(secret.encode(), digestmod=hashlib.sha512)


def has_form(signature: str | None) -> bool:
    """Return whether a text has the form of a signature. It can be checked before the body is received."""
    return signature is not None and _FORM.fullmatch(signature.strip()) is not None


def verify(raw: bytes, signature: str | None, secret: str) -> bool:
    """Return, in constant time, whether a body was signed with the secret.

    :param signature: the value of the header, ``None`` if it is missing; then the result is false
    :param secret: if it is empty, the result is false
    """
    if not signature or not secret:
        return False
    return hmac.compare_digest(signature.strip().encode(errors="replace"), sign(raw, secret).encode())
