"""The errors of the client. Each message names what happened, what was and was not done, and what to do next.

Every error can be pickled and has four attributes:

* ``retryable`` - a retry of the same call cannot act twice;
* ``retry_after`` - seconds the service asked to wait, or ``None``;
* ``maybe_sent`` - the service may have acted although no readable response arrived;
* ``status`` - the HTTP status, or ``None`` where no response arrived.

``str()`` of an error never shows a key, a code, a message body, a number or an address.
"""

from __future__ import annotations

from typing import Any

from cpaas_provider._common.records import PrivateRecord


class ErrorItem(PrivateRecord, frozen=True):
    """One entry of an error body's ``errors`` (contract.md 7), or a fault found before the request left.

    ``message`` is the service's own wording, which may contain what was sent. It is left out of ``repr()``.
    """

    field: str | None = None
    message: str | None = None
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

    @property
    def is_permanent(self) -> bool:
        """Whether a later retry is of no use, or could act twice."""
        return not self.retryable

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the message and the attributes, so that no subclass needs a method of its own."""
        return type(self), self.args, self.__dict__


class CpaasConfigurationError(CpaasError):
    """The client's settings cannot work (base URL, key, option). Nothing was sent."""


class CpaasInvalidRequestError(CpaasError):
    """The request breaks the service's contract. The client refused it before it left. Nothing was sent."""


class CpaasNotSentError(CpaasError):
    """The request did not reach the service: connection refused, DNS, TLS or connect failure. Nothing was done."""

    retryable = True


class CpaasRateLimitedError(CpaasNotSentError):
    """The service asked for fewer requests (429). Nothing was done. See ``retry_after``."""


class CpaasUnavailableError(CpaasNotSentError):
    """The service is temporarily unavailable (503 with Retry-After). Nothing was done. See ``retry_after``."""


class CpaasConnectionStoppedError(CpaasNotSentError):
    """``airflow cpaas stop`` stopped the requests of the connection. Nothing was sent.

    A retry does not help before ``airflow cpaas resume``, so the error is permanent.
    """

    retryable = False


class CpaasBudgetReachedError(CpaasNotSentError):
    """The budget of the connection does not allow the request, or cannot be checked. Nothing was sent.

    A retry does not help before the next period or a higher budget, so the error is permanent.
    """

    retryable = False


class CpaasRejectedError(CpaasError):
    """The request was rejected (4xx, or under a 2xx an error body without a resource).

    ``may_be_gateway`` is true if the response may be that of a gateway or of a wrong base URL: it is not the documented
    error about the request. Then a later retry does no harm. The client itself retries no rejected request.
    ``is_foreign`` is true if the response is certainly that of a gateway: its body is no JSON.
    ``names_absence`` is true for a 404 or 410 in the form of the service's errors, which may name nothing.
    ``rejected_recipients`` holds the recipients of a send that the service's error items name, in the request's own
    form. ``is_message_error`` is true if there are items, and all of them name a field that is not about recipients.
    ``maybe_done`` is true if an earlier attempt of the same call may have succeeded without a readable response. A
    rejected deletion then means that the row is gone, or that a gateway does not know it.
    """

    rejected_recipients: tuple[str, ...] = ()
    is_message_error: bool = False
    may_be_gateway: bool = False
    is_foreign: bool = False
    names_absence: bool = False
    maybe_done: bool = False

    @property
    def is_permanent(self) -> bool:
        """Whether a later retry is of no use."""
        return not self.may_be_gateway


class CpaasAuthenticationError(CpaasRejectedError):
    """The service rejected the API key (401, 403)."""


class CpaasInsufficientBalanceError(CpaasRejectedError):
    """The account cannot pay for the request (402)."""


class CpaasNotFoundError(CpaasRejectedError):
    """The resource that the request names does not exist (404, and the documented error that names its field)."""


class CpaasOperationRemovedError(CpaasRejectedError):
    """The service no longer offers the operation (404 or 410 on a deprecated one)."""


class CpaasNotVerifiedError(CpaasRejectedError):
    """The one-time passcode was not accepted: wrong, expired, used or revoked (404, or an error body).

    A page of a gateway, which is no JSON, is no such answer.
    """


class CpaasUnknownOutcomeError(CpaasError):
    """The request left and no readable response arrived. The client cannot determine whether the service acted.

    For a send, a purchase or a creation ``maybe_sent`` is true, and a retry may act twice.
    For a read ``maybe_sent`` is false, and a retry is harmless.
    """

    def __init__(self, message: str, *, maybe_sent: bool = True, retryable: bool = False, **facts: Any) -> None:
        super().__init__(message, **facts)
        self.maybe_sent = maybe_sent
        self.retryable = retryable
