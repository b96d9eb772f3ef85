"""One tree of errors, each saying what happened, what was and was not done, and what to do next.

Every error can be pickled and carries four facts a caller decides by:

* ``retryable`` - the same call may be made again without doing anything twice;
* ``retry_after`` - seconds the service asked to wait, or ``None``;
* ``maybe_sent`` - the service may have acted although no readable answer came;
* ``status`` - the HTTP status, or ``None`` where no answer came.

``str()`` of an error never shows a key, a code, a message body, a number or an address.
"""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class ErrorItem:
    """One entry of an error body's ``errors`` (INTERFACE.md section 7), or of a request refused before it left.

    ``message`` is the service's own wording, which may repeat what was sent; it is left out of ``repr()``.
    """

    field: str | None = None
    message: str | None = dataclasses.field(default=None, repr=False)
    type: str | None = None


class CpaasError(Exception):
    """Base of all errors of this client."""

    retryable: bool = False
    maybe_sent: bool = False

    def __init__(
        self,
        message: str,
        *,
        operation: str | None = None,
        status: int | None = None,
        retry_after: float | None = None,
        items: tuple[ErrorItem, ...] = (),
    ) -> None:
        super().__init__(message)
        self.operation = operation
        self.status = status
        self.retry_after = retry_after
        self.items = items

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by message and facts, so that subclasses need nothing of their own."""
        return type(self), self.args, self.__dict__


class CpaasConfigurationError(CpaasError):
    """The client was set up in a way that cannot work (base URL, key, option). Nothing was sent."""


class CpaasInvalidRequestError(CpaasError):
    """The request breaks the service's contract and was refused before it left. Nothing was sent."""


class CpaasNotSentError(CpaasError):
    """The request did not reach the service: refused, DNS, TLS or connect failure. Nothing was done."""

    retryable = True


class CpaasRateLimitedError(CpaasNotSentError):
    """The service asked for fewer requests (429). Nothing was done; see ``retry_after``."""


class CpaasUnavailableError(CpaasNotSentError):
    """The service is down for a while and said for how long (503 with Retry-After). Nothing was done."""


class CpaasRejectedError(CpaasError):
    """The service read the request and refused it (4xx, or under a 2xx an error body without a resource).

    ``rejected_recipients`` holds the recipients of a send that the service's error items name, in the form the request
    had them, and ``is_message_error`` says that there are items and all of them name a field that is not about
    recipients.
    """

    rejected_recipients: tuple[str, ...] = ()
    is_message_error: bool = False


class CpaasAuthenticationError(CpaasRejectedError):
    """The API key was refused (401, 403)."""


class CpaasInsufficientBalanceError(CpaasRejectedError):
    """The account cannot pay for the request (402)."""


class CpaasNotFoundError(CpaasRejectedError):
    """What the request names does not exist (404)."""


class CpaasOperationRemovedError(CpaasRejectedError):
    """The service no longer offers the operation (404 or 410 on a deprecated one)."""


class CpaasNotVerifiedError(CpaasRejectedError):
    """The one-time passcode was not accepted: wrong, expired, used or revoked (404, or an error body)."""


class CpaasUnknownOutcomeError(CpaasError):
    """The request left and no readable answer came, so nobody here knows whether the service acted.

    For a send, a purchase or a creation ``maybe_sent`` is true and the request must not simply be repeated;
    for a read it is false, and repeating is harmless.
    """

    def __init__(self, message: str, *, maybe_sent: bool = True, retryable: bool = False, **facts: Any) -> None:
        super().__init__(message, **facts)
        self.maybe_sent = maybe_sent
        self.retryable = retryable
