"""Callback URLs that cannot be guessed: each contains a signed token that identifies its request."""

from __future__ import annotations

import functools
import hashlib
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

from itsdangerous import BadSignature, Signer

MAX_RECIPIENTS = 100_000
HANDSHAKE = "handshake"
"""The campaign of the tokens that ask the receiver for the id of its database."""

LIFETIME = timedelta(days=90)
"""How long a callback URL is valid, unless configured otherwise. It is the retention of reports."""

_INVALID = "The callback URL is not signed by this provider."

_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
# The last character of a signature has two unused bits. The signer always writes zeros.
_TOKEN = re.compile(
    r"([A-Za-z0-9_-]{1,100})\.([A-Za-z0-9_-]{1,100})\.([1-9][0-9]{0,5})\.([1-9][0-9]{9})"
    r"\.[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]"
)


class InvalidTokenError(Exception):
    """The text is not a valid callback token. The error never says which part is wrong."""


@dataclass(frozen=True, slots=True)
class CallbackToken:
    """The content of a callback token.

    :param campaign: the campaign of the request, 1 to 100 of ``A-Z a-z 0-9 _ -``
    :param reference: our reference of the request, of the same characters
    :param recipients: the number of recipients of the request, 1 to 100,000
    :param issued: when the URL was created, to the second; ``None`` before that
    :raises ValueError: when a value is out of these bounds
    """

    campaign: str
    reference: str
    recipients: int
    # Not compared, because all URLs of one request are equivalent.
    issued: datetime | None = field(default=None, compare=False)

    def expired(self, lifetime: timedelta) -> bool:
        """Return whether the URL is older than ``lifetime``."""
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
    """Return the URL to which the service sends the delivery reports of one request. Never log it: it is a credential.

    :param base: the public URL at which the receiver is mounted, with its path
    :param secret: the newest signing secret of the connection
    :raises ValueError: when the secret is empty
    """
    if not secret:
        raise ValueError("A callback URL needs a signing secret.")
    issued = int((token.issued or datetime.now(UTC)).timestamp())
    text = f"{token.campaign}.{token.reference}.{token.recipients}.{issued}"
    signed = _signer(conn_id, (secret,)).sign(text).decode()
    return f"{base.rstrip('/')}/callback/{quote(conn_id, safe='')}/{signed}"


# Cached, because all reports of a request have the same token. An invalid token raises, so it is not cached.
@functools.lru_cache(maxsize=10_000)
def verify_token(conn_id: str, text: str, secrets: tuple[str, ...]) -> CallbackToken:
    """Return the content of a token, if it was signed with one of the secrets.

    :param conn_id: the connection in the URL; a token that was signed for another connection is invalid
    :param text: the last part of the URL's path
    :raises InvalidTokenError: when no secret verifies the token
    """
    match = _TOKEN.fullmatch(text)
    if match is None or int(match[3]) > MAX_RECIPIENTS or not any(secrets):
        raise InvalidTokenError(_INVALID)
    try:
        _signer(conn_id, tuple(filter(None, secrets))).unsign(text)
    except BadSignature:
        raise InvalidTokenError(_INVALID) from None
    return CallbackToken(match[1], match[2], int(match[3]), datetime.fromtimestamp(int(match[4]), UTC))


@functools.lru_cache(maxsize=1000)
def _signer(conn_id: str, secrets: tuple[str, ...]) -> Signer:
    """Return the signer of one connection, which signs with the first secret and verifies with all."""
    salt = f"cpaas callback {conn_id}"
    return Signer(secrets[::-1], salt, ".", key_derivation="hmac", digest_method=hashlib.sha256)
