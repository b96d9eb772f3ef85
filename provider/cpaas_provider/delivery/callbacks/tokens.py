"""Callback URLs that cannot be guessed: each names its request, and is signed."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

from itsdangerous import BadSignature, Signer

MAX_RECIPIENTS = 100_000
HANDSHAKE = "handshake"
"""The campaign of tokens that ask the receiver which store it has."""

LIFETIME = timedelta(days=90)
"""How long a callback URL takes reports, unless the configuration says otherwise: as long as reports are kept."""

_INVALID = "The callback URL is not signed by this provider."

_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
# The last character of a signature has two bits to spare: only as zeros are they ours.
_TOKEN = re.compile(
    r"([A-Za-z0-9_-]{1,100})\.([A-Za-z0-9_-]{1,100})\.([1-9][0-9]{0,5})\.([1-9][0-9]{9})"
    r"\.[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]"
)


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
    text = f"{token.campaign}.{token.reference}.{token.recipients}.{issued}"
    signed = _signer(conn_id, (secret,)).sign(text).decode()
    return f"{base.rstrip('/')}/callback/{quote(conn_id, safe='')}/{signed}"


def verify_token(conn_id: str, text: str, secrets: Sequence[str]) -> CallbackToken:
    """Return what the last part of a callback URL says, once one of the secrets proves that we wrote it.

    :param conn_id: the connection in whose name it came; a token of another's is bad
    :raises InvalidTokenError: when none does
    """
    return _verified(conn_id, text, tuple(secrets))


# All recipients of a request are reported with the same token. An invalid one is not cached.
@functools.lru_cache(maxsize=10_000)
def _verified(conn_id: str, text: str, secrets: tuple[str, ...]) -> CallbackToken:
    found = _TOKEN.fullmatch(text)
    if found is None or int(found[3]) > MAX_RECIPIENTS or not any(secrets):
        raise InvalidTokenError(_INVALID)
    try:
        _signer(conn_id, tuple(filter(None, secrets))).unsign(text)
    except BadSignature:
        raise InvalidTokenError(_INVALID) from None
    return CallbackToken(found[1], found[2], int(found[3]), datetime.fromtimestamp(int(found[4]), UTC))


@functools.lru_cache(maxsize=1000)
def _signer(conn_id: str, secrets: tuple[str, ...]) -> Signer:
    """Return what signs with the first of the secrets and verifies with all, for one connection and nothing else."""
    salt = f"cpaas callback {conn_id}"
    return Signer(secrets[::-1], salt, ".", key_derivation="hmac", digest_method=hashlib.sha256)
