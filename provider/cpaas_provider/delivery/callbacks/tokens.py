"""Callback URLs nobody can guess: each says what request it belongs to, and proves that we made it."""

from __future__ import annotations

import functools
import hashlib
import hmac
import re
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

MAX_RECIPIENTS = 100_000
HANDSHAKE = "handshake"
"""The campaign of tokens that ask the receiver which store it has."""

LIFETIME = timedelta(days=90)
"""How long a callback URL takes reports, unless the configuration says otherwise: as long as reports are kept."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
_TOKEN = re.compile(
    r"([A-Za-z0-9_-]{1,100})\.([A-Za-z0-9_-]{1,100})\.([1-9][0-9]{0,5})\.([1-9][0-9]{9})\.([A-Za-z0-9_-]{27})"
)
_PURPOSE = b"cpaas callback"
_MAC_BYTES = 20


class InvalidTokenError(Exception):
    """The text is not a valid callback token. The error never says which part is wrong."""


@dataclass(frozen=True, slots=True)
class CallbackToken:
    """What a callback URL says.

    :param campaign: what waiters wait for, up to 100 of ``A-Z a-z 0-9 _ -``
    :param reference: our name of the request, of the same alphabet
    :param recipients: how many the request names, 1 to 100,000
    :param issued: when its URL was made, to the second; ``None`` where there is none yet
    :raises ValueError: when one of them is not so
    """

    campaign: str
    reference: str
    recipients: int
    # Two URLs of one request differ in nothing else, and are as good as each other.
    issued: datetime | None = field(default=None, compare=False)

    def expired(self, lifetime: timedelta) -> bool:
        """Tell whether its URL is older than that, and to be refused."""
        return self.issued is not None and datetime.now(UTC) - self.issued > lifetime

    def __post_init__(self) -> None:
        if not (_NAME.fullmatch(self.campaign) and _NAME.fullmatch(self.reference)):
            raise ValueError(
                "The campaign and the reference of a callback token must be 1 to 100 letters, digits, hyphens or "
                "underscores."
            )
        if not 1 <= self.recipients <= MAX_RECIPIENTS:
            raise ValueError(f"A callback token is for 1 to {MAX_RECIPIENTS:,} recipients.")


def callback_url(base: str, conn_id: str, secret: str, token: CallbackToken) -> str:
    """Return the URL that takes the delivery reports of one request. It is a credential: log it nowhere.

    :param base: public URL the receiver is mounted at, with its path
    :param secret: what signs, the newest of the connection's
    :raises ValueError: when the secret is empty
    """
    if not secret:
        raise ValueError("A callback URL needs a signing secret.")
    issued = int((token.issued or datetime.now(UTC)).timestamp())
    mac = _mac(_canonical(conn_id, token, issued), secret)
    text = f"{token.campaign}.{token.reference}.{token.recipients}.{issued}.{mac}"
    return f"{base.rstrip('/')}/callback/{quote(conn_id, safe='')}/{text}"


def verify_token(conn_id: str, text: str, secrets: Sequence[str]) -> CallbackToken:
    """Return what the last part of a callback URL says, once one of the secrets proves that we wrote it.

    :param conn_id: the connection in whose name it came; a token of another's is bad
    :raises InvalidTokenError: when none does
    """
    return _verified(conn_id, text, tuple(secrets))


# All recipients of a request are reported with the same token. A bad one is not remembered.
@functools.lru_cache(maxsize=10_000)
def _verified(conn_id: str, text: str, secrets: tuple[str, ...]) -> CallbackToken:
    found = _TOKEN.fullmatch(text)
    if found is None or int(found[3]) > MAX_RECIPIENTS:
        raise InvalidTokenError("The callback URL is not signed by this provider.")
    issued, mac = int(found[4]), found[5]
    token = CallbackToken(found[1], found[2], int(found[3]), datetime.fromtimestamp(issued, UTC))
    whole = _canonical(conn_id, token, issued)
    # All are tried, so that the time tells nothing of which.
    proofs = [hmac.compare_digest(mac, _mac(whole, secret)) for secret in secrets if secret]
    if not any(proofs):
        raise InvalidTokenError("The callback URL is not signed by this provider.")
    return token


def _canonical(conn_id: str, token: CallbackToken, issued: int) -> bytes:
    """Return all it says, each part with its length before it, or two different tokens could read the same."""
    texts = (conn_id, token.campaign, token.reference, str(token.recipients), str(issued))
    parts = [text.encode() for text in texts]
    return b"".join([len(part).to_bytes(4, "big") + part for part in parts])


def _mac(whole: bytes, secret: str) -> str:
    return urlsafe_b64encode(hmac.digest(_key(secret), whole, hashlib.sha256)[:_MAC_BYTES]).rstrip(b"=").decode()


@functools.lru_cache(maxsize=64)
def _key(secret: str) -> bytes:
    return hmac.digest(secret.encode(), _PURPOSE, hashlib.sha256)
