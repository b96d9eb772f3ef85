"""Recognises delivery reports of permanent failures by their reason.

The service does not publish its reasons, so the list has reasons that are usual in the field. A reason counts only if
one of its clauses is on the list, as a whole. Words inside another clause do not count: "invalid number" is on the
list, and "invalid number of segments" is not about the recipient. Of emails the enhanced status code decides, where
there is one. Every other reason lists no recipient, because a mistaken suppression is hard to notice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cpaas_provider.delivery.reports import DeliveryStatus, Report
from cpaas_provider.provider_info import HARD_BOUNCE_REASONS, INVALID_NUMBER_REASONS

_KINDS = {DeliveryStatus.UNDELIVERED: "sms", DeliveryStatus.BOUNCED: "email"}
"""The kind of message whose permanent failures have this status. Airtime has none: it reaches no handset."""

_CAMEL_CASE = re.compile(r"(?<=[a-z])(?=[A-Z])")
_CLAUSE_END = re.compile(r"[^\w\s'\u2019+-]+|_{3,}|\s-+\s")
_WORD = re.compile(r"[^\W_]+")
_APOSTROPHE = re.compile(r"['\u2019]")

_CODE = re.compile(r"[245]\.\d{1,3}\.\d{1,3}")
# Where such codes are: at the beginning, in brackets, or after a reply code or a word for codes. Elsewhere it may be a
# version, and inside more digits or a name it is a part of an IP address, a host or an id.
_ENHANCED_CODE = re.compile(
    r"(?:^\W*|[#(\[;]\s*|(?<![\w.])[245]\d\d[ #-]+|\b(?:code|status|error|dsn|reason|said|smtp|reply|response)\W{1,3})"
    r"([245]\.\d{1,3}\.\d{1,3})(?![\w-]|\.\w)",
    re.IGNORECASE,
)
_TEMPORARY_REPLY = re.compile(r"(?<![\w.-])4\d\d(?![\w.])")
_SILENT_CODES = frozenset({"5.0.0", "5.1.0", "5.5.0"})
"""Codes for any other failure: the words decide."""

_FILLERS = frozenset(_WORD.findall("a an the this that is was error err ec code permanent here"))
"""Words that say nothing of the cause."""

_OTHER_CAUSES = frozenset(
    _WORD.findall(
        """
        temporary temporarily tempfail transient retry retrying deferred soft later delayed pending expired maintenance
        temporaire temporairement temporal temporalmente temporariamente vorübergehend
        greylist greylisted greylisting graylisted graylisting
        absent busy off detached unreachable reachable coverage roaming barred barring ported suspended memory
        full quota storage exceeded limit rate size large long voll plein pleine lleno llena cheio cheia
        throttled throttling overload overloaded congestion congested
        timeout timed network route routing loop dns connection gateway hlr smsc sri ss7
        service internal equipment unexpected database directory ldap responding
        provisioned supported enabled disabled allowed permitted denied prohibited prohibition relay relaying country
        authentication unauthenticated unauthorized api tenant credit credits balance insufficient payment
        blocked blocklist blocklisted blacklist blacklisted listed rbl spam filtered fraud policy reputation
        spf dkim dmarc dnd opted unsubscribed
        sender originator source content segments template duplicate
        """
    )
)
"""Words for a temporary failure, or one that is not the recipient's. A reason with one of them outside of its listed
clauses lists no recipient."""

_OTHER_CAUSE_PHRASES = re.compile(r"\b(?:mail from|do not disturb|lookup fail\w*|system (?:error|failure))\b")
_AGAIN = re.compile(r"\btry again\b")


class PermanentFailures:
    """Recognises reports of permanent failures, by the reasons of Airflow's configuration."""

    def __init__(self) -> None:
        self._reasons = {
            "sms": _configured("invalid_number_reasons", INVALID_NUMBER_REASONS),
            "email": _configured("hard_bounce_reasons", HARD_BOUNCE_REASONS),
        }

    def reports_one(self, report: Report, kind: str | None) -> bool:
        """Return whether a report is of a permanent failure.

        :param kind: the kind of the report's request, used if the report does not name one
        """
        if report.delivery_status is None or (of_status := _KINDS.get(report.delivery_status)) is None:
            return False
        kind = report.kind or kind or _kind_of(report)
        return kind == of_status and _is_listed(report, self._reasons[kind], is_email=kind == "email")


def proves_reachable(report: Report, kind: str | None) -> bool:
    """Return whether a report proves that messages reach the recipient. Airtime reaches an account, not a handset."""
    kind = report.kind or kind or ("airtime" if report.status == "success" else None)
    return report.delivery_status is not None and report.delivery_status.reached and kind != "airtime"


def _kind_of(report: Report) -> str | None:
    """Return the kind of a report whose request is not recorded yet. The status ``undelivered`` excludes airtime."""
    if report.delivery_status is DeliveryStatus.BOUNCED or "@" in report.recipient:
        return "email"
    return "sms" if report.status == "undelivered" else None


def _is_listed(report: Report, listed: frozenset[str], *, is_email: bool) -> bool:
    reason = _without_addresses(report.reason or "")
    clauses = [*_clauses(report.status), *_clauses(reason)]
    whole = " ".join(_clauses(reason))
    # Only the words around a listed clause may name another cause: "number not in service" does not.
    words = "" if whole in listed else " ".join(clause for clause in clauses if clause not in listed)
    if not _OTHER_CAUSES.isdisjoint(words.split()) or _OTHER_CAUSE_PHRASES.search(words):
        return False
    if is_email:
        if _TEMPORARY_REPLY.search(reason):
            return False
        codes = set(_ENHANCED_CODE.findall(reason)) - _SILENT_CODES
        # Where there are several, the server says several things, and not only of the recipient.
        if codes:
            return codes <= listed
    if _AGAIN.search(words):
        return False
    return any(clause in listed for clause in (*clauses, whole))


def _without_addresses(text: str) -> str:
    return "\n".join(" ".join(word for word in line.split() if "@" not in word) for line in text.splitlines())


def _clauses(text: str) -> Iterator[str]:
    """Yield the clauses of a text, in lower case and without figures and words that say nothing."""
    for part in _CLAUSE_END.split(_CAMEL_CASE.sub(" ", text)):
        words = _WORD.findall(_APOSTROPHE.sub("", part).casefold())
        if kept := [word for word in words if word not in _FILLERS and not word.isdigit()]:
            yield " ".join(kept)


def _configured(option: str, default: str) -> frozenset[str]:
    from airflow.sdk.configuration import conf

    configured: str | None = conf.get("cpaas", option, fallback=None)
    parts = [part.strip() for part in (default if configured is None else configured).split(",")]
    codes = {part for part in parts if _CODE.fullmatch(part)}
    return frozenset(codes.union(*(_clauses(part) for part in parts if part not in codes)))
