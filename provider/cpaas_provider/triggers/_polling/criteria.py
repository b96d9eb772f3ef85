"""When a wait is over: one decision for the sensor and the trigger."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from cpaas_provider.api.models.otp import OtpToken
    from cpaas_provider.delivery.tracking.counts import DeliveryCounts, SendCounts

DONE, MISSED, TIMED_OUT, ERROR, NOT_FOUND = "done", "missed", "timed_out", "error", "not_found"
NOTHING = "nothing"
"""The outcome of a wait for recipients none of which was accepted, or is of unknown outcome and to be waited for."""
NOTHING_ACCEPTED = (
    "send_result names no accepted recipient, so there is no delivery to wait for. Recipients of unknown outcome are "
    "waited for only with wait_for_unknown=True."
)
FIGURES = ("expected", "delivered", "undelivered", "in_flight", "unreported")

_ROUNDING = 1e-9


def describe_figures(figures: Mapping[str, Any]) -> str:
    """Return delivery figures as a sentence."""
    return (
        "Of {expected:,} recipients {delivered:,} are delivered, {undelivered:,} undelivered, {in_flight:,} in flight "
        "and {unreported:,} unreported."
    ).format_map(figures)


class ToResolve(NamedTuple):
    """A campaign that had recipients of unknown outcome when its task ended. A person may resolve them meanwhile.

    :param accepted: the number of recipients accepted
    :param unknown: the number of recipients of unknown outcome to wait for
    :param waits_for_unknown: whether recipients of unknown outcome are waited for, also if there are none now
    """

    campaign: str
    accepted: int
    unknown: int
    waits_for_unknown: bool = False

    def now(self, send: SendCounts | None, counts: DeliveryCounts | None) -> ToResolve:
        """Return the same campaign with the numbers that the database has, as far as it knows them."""
        if send is None or send.accepted is None or send.unknown is None:
            return self
        # Recipients with a report are among ``counts``, and no longer among those without one.
        unknown = send.unknown + (counts.unknown if counts else 0) if self.waits_for_unknown else 0
        return self._replace(accepted=send.accepted, unknown=unknown)


class DeliveryCriteria(Struct, frozen=True):
    """When the wait is over.

    :param expected: the number of recipients accepted
    :param min_delivered: the share of them that must be delivered, above 0 and up to 1; ``None`` to wait until each of
        them has a final status, delivered or not
    :param unknown: the number of recipients of unknown outcome to wait for, too
    :param without_count: the campaigns whose recipients ``expected`` does not count yet: references given as text
    :param to_resolve: those of the campaigns that had recipients of unknown outcome, whether to wait for them or not,
        and those without a number, if recipients of unknown outcome are waited for
    :param unknown_requests: the campaigns that are requests of unknown outcome
    :param unknown_elsewhere: the number of recipients of unknown outcome with a report in other campaigns. Their
        reports stand for none of ``unknown``
    """

    expected: int
    min_delivered: float | None = None
    unknown: int = 0
    without_count: tuple[str, ...] = ()
    to_resolve: tuple[ToResolve, ...] = ()
    unknown_requests: frozenset[str] = frozenset()
    unknown_elsewhere: int = 0

    def with_references(self, recipients: Mapping[str, int]) -> DeliveryCriteria:
        """Return the criteria that also count the recipients of the campaigns without a count.

        :param recipients: by reference, the number of recipients that the database has recorded as accepted
        :raises ValueError: when it has no record of one of them, with a message for a DAG author
        """
        if missing := len(set(self.without_count) - recipients.keys()):
            raise ValueError(
                f"The database has no record of {missing} of {len(self.without_count)} references, so the number of "
                "recipients to wait for is unknown. Give the operator's .output instead of references. If sender and "
                "sensor do not share one database, set [cpaas] database to the same database for both."
            )
        counted = {name: recipients[name] for name in self.without_count}
        to_resolve = tuple(
            send._replace(accepted=send.accepted + counted.get(send.campaign, 0)) for send in self.to_resolve
        )
        expected = self.expected + sum(counted.values())
        return replace(self, expected=expected, without_count=(), to_resolve=to_resolve)

    def with_resolutions(
        self, sends: Mapping[str, SendCounts], counts: Mapping[str, DeliveryCounts]
    ) -> DeliveryCriteria:
        """Return the criteria with what probes and people have established since the tasks ended.

        :param sends: by campaign, the numbers that the database has
        :param counts: by campaign, those of its reports
        """
        if not self.to_resolve and not self.unknown:
            return self
        to_resolve = tuple(send.now(sends.get(send.campaign), counts.get(send.campaign)) for send in self.to_resolve)
        changes = list(zip(self.to_resolve, to_resolve, strict=True))
        expected = self.expected + sum(new.accepted - old.accepted for old, new in changes)
        unknown = self.unknown + sum(new.unknown - old.unknown for old, new in changes)
        awaited = self.unknown_requests.union(send.campaign for send in to_resolve if send.waits_for_unknown)
        elsewhere = sum(count.unknown for campaign, count in counts.items() if campaign not in awaited)
        return replace(self, expected=expected, unknown=unknown, to_resolve=to_resolve, unknown_elsewhere=elsewhere)

    def counted(self, campaign: str, counts: DeliveryCounts) -> DeliveryCounts:
        """Return the counts of a campaign as they count for this wait."""
        return counts.as_unknown() if campaign in self.unknown_requests else counts

    def summary(self, counts: DeliveryCounts) -> dict[str, int]:
        """Return the delivery figures, as plain JSON that adds up to ``expected``.

        Recipients of requests of unknown outcome are added to ``expected`` once a report for them arrives. Those to
        wait for are added at once.
        """
        unreported = counts.unknown_without_report(self.unknown + self.unknown_elsewhere) if self.unknown else 0
        expected = counts.expected(self.expected) + unreported
        figures = (expected, counts.delivered, counts.undelivered, counts.in_flight, expected - counts.known)
        return dict(zip(FIGURES, figures, strict=True))

    def describe(self, counts: DeliveryCounts) -> str:
        """Return the figures of a wait that continues, as a line for its log."""
        return f"The wait continues. {describe_figures(self.summary(counts))}"

    def evaluate(self, counts: DeliveryCounts) -> dict[str, Any] | None:
        """Return how the wait ended, with the figures; ``None`` while it continues.

        The outcome is ``done``, ``missed``, or ``nothing`` if there is no recipient to wait for.
        """
        summary = self.summary(counts)
        outcome = self._outcome(**summary)
        return {"outcome": outcome, **summary} if outcome else None

    def evaluate_timeout(self, counts: DeliveryCounts) -> dict[str, Any]:
        """Return the same for a wait that ends now."""
        return self.evaluate(counts) or {"outcome": TIMED_OUT, **self.summary(counts)}

    def _outcome(self, expected: int, delivered: int, undelivered: int, in_flight: int, unreported: int) -> str | None:
        if not expected:
            return NOTHING
        if self.min_delivered is None:
            return None if in_flight or unreported else DONE
        # However small the share, it is not reached before a message is delivered.
        needed = max(1, math.ceil(self.min_delivered * expected - _ROUNDING))
        if delivered >= needed:
            return DONE
        return MISSED if expected - undelivered < needed else None


class OtpCriteria(Struct, frozen=True):
    """How a passcode is judged, by the sensor and the trigger alike.

    :param expires_in: minutes for which the code is valid, or ``None`` if only the status counts
    :param success_statuses: values of ``status_desc`` that mean verified, or ``None`` for the usual one
    :param failure_statuses: values of ``status_desc`` that end the wait, or ``None`` for the usual ones
    :param expires_by: the moment by which the passcode has expired, also against the record: ``expires_in`` after the
        wait began. The service's clock may be wrong, or its times may have no zone
    """

    expires_in: int | None = None
    success_statuses: Sequence[str] | None = None
    failure_statuses: Sequence[str] | None = None
    expires_by: datetime | None = None

    def expiry(self, record: OtpToken) -> datetime | None:
        """Return the moment the passcode expires, ``None`` if that is unknown."""
        if self.expires_in is None:
            return None
        moments = (record.expires_at(self.expires_in), self.expires_by)
        return min((moment for moment in moments if moment is not None), default=None)

    def describe(self, record: OtpToken, deadline: datetime) -> str:
        """Return the status of a passcode that is pending and the end of its wait, as a line for its log.

        :param deadline: when the time limit of the wait is over
        """
        expiry = self.expiry(record)
        ends, why = (deadline, "when its timeout is over")
        if expiry is not None and expiry < deadline:
            ends, why = expiry, "when the passcode expires"
        return (
            f"The wait continues. Passcode {record.id} is pending (status {record.status_desc}). The wait ends at "
            f"{ends.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC, {why}."
        )

    def evaluate(self, record: OtpToken, now: datetime) -> dict[str, Any] | None:
        """Return the outcome of the passcode as plain JSON, or ``None`` while it is pending.

        The result is ``{"outcome", "id", "status", "status_desc"}``, with ``"by": "clock"`` if the passcode expired
        and its status is still pending.
        """
        from cpaas_provider.api.models.otp import FAILURE_STATUSES, SUCCESS_STATUSES, OtpOutcome

        success = SUCCESS_STATUSES if self.success_statuses is None else self.success_statuses
        failure = FAILURE_STATUSES if self.failure_statuses is None else self.failure_statuses
        outcome = record.outcome(success, failure)
        result = {"outcome": outcome.value, "id": record.id, "status": record.status, "status_desc": record.status_desc}
        if outcome is not OtpOutcome.PENDING:
            return result
        expiry = self.expiry(record)
        if expiry is not None and now >= expiry:
            return {**result, "outcome": OtpOutcome.EXPIRED.value, "by": "clock"}
        return None


class ReadFailure(Enum):
    """What a read of a passcode that failed means for its wait."""

    TEMPORARY = "temporary"
    """No answer of the service, such as a timeout or a server error: the wait continues, however often."""
    INCONCLUSIVE = "inconclusive"
    """A rejected key, an unusable connection, or a response that may be that of a gateway or of an edited base URL. It
    ends the wait only if it goes on for minutes."""
    FINAL = "final"
    """The service's own answer about this very passcode: it ends the wait."""


def classify_failure(error: Exception) -> ReadFailure:
    """Return what a failed read means for the wait, for the sensor and the trigger alike."""
    from cpaas_provider.api import errors

    if isinstance(error, errors.CpaasInvalidRequestError):
        return ReadFailure.FINAL
    if isinstance(error, errors.CpaasRejectedError):
        is_account = isinstance(error, (errors.CpaasAuthenticationError, errors.CpaasInsufficientBalanceError))
        return ReadFailure.INCONCLUSIVE if error.may_be_gateway or is_account else ReadFailure.FINAL
    is_temporary = isinstance(error, errors.CpaasError) and error.retryable
    return ReadFailure.TEMPORARY if is_temporary else ReadFailure.INCONCLUSIVE


def otp_error_result(otp_id: str, error: Exception) -> dict[str, Any]:
    """Return how a wait for a passcode ended by an error, as plain JSON, for the sensor and the trigger alike.

    It is ``{"outcome", "id", "message"}``. If a retry of the task may end otherwise, it has ``"retry": True``.
    """
    from cpaas_provider.api.errors import CpaasNotFoundError

    outcome = NOT_FOUND if isinstance(error, CpaasNotFoundError) else ERROR
    result = {"outcome": outcome, "id": otp_id, "message": str(error)}
    return result if classify_failure(error) is ReadFailure.FINAL else {**result, "retry": True}
