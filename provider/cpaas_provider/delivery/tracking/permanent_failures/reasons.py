"""Recognises delivery reports of permanent failures by their reason.

The service does not publish its reasons. A reason lists a recipient only if each of its clauses is known: as a listed
reason, or as words that say nothing of the cause. At least one of them must be listed. A clause counts as a whole:
"invalid number" is listed, "invalid number of segments" is unknown. Codes of emails count in the same way, and so do
codes of networks: "MAP error 27" is an absent subscriber. One unknown clause may name another cause, so it lists no
recipient: a mistaken suppression is hard to notice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cpaas_provider.delivery.reports import MAX_REASON, DeliveryStatus, Report
from cpaas_provider.provider_info import HARD_BOUNCE_REASONS, INVALID_NUMBER_REASONS

KINDS = {DeliveryStatus.UNDELIVERED: "sms", DeliveryStatus.BOUNCED: "email"}
"""The kind of message whose permanent failures have this status. Airtime has none: it reaches no handset."""

_CAMEL_CASE = re.compile(r"(?<=[a-z])(?=[A-Z])")
_CLAUSE_END = re.compile(r"[^\w\s'\u2019+-]+|_{3,}|\s-+\s")
_WORD = re.compile(r"[^\W_]+")
_APOSTROPHE = re.compile(r"['\u2019]")

_TRACE = re.compile(
    r"(?<![\w.+=-])[\w.+=-]+@[\w-]+(?:\.[\w-]+)*|https?://[^\s,;()<>]+|\bhost \S+ said\b"
    r"|(?<![\w.-])(?=[\w.-]*\d)[\w.-]+ - gsmtp\b",
    re.IGNORECASE,
)
"""What mail servers add: addresses, links, their name, and ids. Words beside them count, also without a space."""
_CODE = re.compile(r"(?<![\w.])[245]\.\d{1,3}\.\d{1,3}(?![\w-]|\.\w)")
"""An enhanced status code. Inside more digits or a name it is a part of an IP address, a host or a version."""
_TEMPORARY_REPLY = re.compile(r"(?<![^\W_])(?<!\w[.-])4\d\d(?![^\W_]|\.\w)")

_NETWORK_CODE = re.compile(
    r"(?<![^\W_])(?:(map|gsm|rp|q[\W_]?850|ss7)[\W_]*(?:(?:error|err|code|cause|reason)[\W_]*)*"
    r"|(?:(?:error|err|ec|code|cause|reason|status|result|response)[\W_]*)*)0*(\d{1,5})(?![^\W_])",
    re.IGNORECASE,
)
"""A cause by its code, such as "MAP error 27" for an absent subscriber, or 27 alone."""
_WRITTEN_NUMBER = re.compile(r"(?<!\w)\(?[+0][\d ().-]{5,}\d")
"""A phone number in groups of digits. One without separators is longer than any code."""
_NUMBER_CODES = {"rp": ("1", "30")}
"""The codes for an unassigned number, in networks that have others than 1."""

_FILLERS = frozenset(_WORD.findall("a an the this that is was error err ec code permanent permanently here sorry"))
"""Words that say nothing of the cause."""

_NEUTRAL_CODES = frozenset({"5.0.0", "5.1.0", "5.5.0"})
"""Codes for any other failure: the words decide."""


def _clauses(text: str) -> Iterator[str]:
    """Yield the clauses of a text, in lower case and without figures and words that say nothing."""
    for part in _CLAUSE_END.split(_CAMEL_CASE.sub(" ", text)):
        words = _WORD.findall(_APOSTROPHE.sub("", part).casefold())
        if kept := [word for word in words if word not in _FILLERS and not word.isdigit()]:
            yield " ".join(kept)


# fmt: off
_NEUTRAL = _NEUTRAL_CODES.union(*map(_clauses, (
    "failed", "failure", "undelivered", "undeliverable", "not delivered", "rejected", "bounced", "delivery",
    "delivery failed", "delivery failure", "delivery status", "message undelivered", "message not delivered",
    "message rejected", "message could not be delivered", "could not be delivered", "undeliverable address",
    "status", "reason", "cause", "description", "details", "result", "q", "gsm", "map", "rp cause", "smtp", "dsn",
    "diagnostic", "reply", "response", "remote server said", "server replied", "server response",
    "in reply to rcpt to command", "after rcpt to", "rcpt to", "requested action not taken",
    "requested mail action not taken", "requested mail action aborted", "mailbox unavailable",
    "recipient rejected", "recipient address", "recipient address rejected", "address rejected",
    "bad destination mailbox address", "bad destination mailbox address syntax", "bad recipient address syntax",
    "recipient address is not a valid address", "recipient has moved", "mailbox has moved",
    "destination mailbox has moved", "no forwarding address", "recipient address has null MX", "resolver", "adr",
    "ex recip not found", "recipient not found by smtp address lookup", "please try double-checking address",
    "please try double-checking recipient's email address for typos or unnecessary spaces", "for more information",
    "for more information go to", "go to", "learn more at", "please visit", "see",
)))
# fmt: on
"""Clauses that say nothing of the cause by themselves."""


class PermanentFailures:
    """Recognises reports of permanent failures, by the reasons of Airflow's configuration."""

    def __init__(self) -> None:
        self._reasons = {
            "sms": _configured("invalid_number_reasons", INVALID_NUMBER_REASONS),
            "email": _configured("hard_bounce_reasons", HARD_BOUNCE_REASONS),
        }

    def reports_one(self, report: Report, kind: str | None) -> bool:
        """Return whether a report is of a permanent failure.

        If the kind is not known yet, it may be one. It counts once its row has the kind of ``KINDS``.

        :param kind: the kind of the message, see ``kind_of``
        """
        if report.delivery_status is None or (of_status := KINDS.get(report.delivery_status)) is None:
            return False
        return kind in (None, of_status) and _is_listed(report, self._reasons[of_status])


def proves_reachable(report: Report, kind: str | None) -> bool:
    """Return whether a report proves that messages reach the recipient. Airtime reaches an account, not a handset."""
    kind = report.kind or kind or ("airtime" if report.status == "success" else None)
    return report.delivery_status is not None and report.delivery_status.reached and kind != "airtime"


def kind_of(report: Report, kind: str | None) -> str | None:
    """Return the kind of message that a report is about, if it is known. The status ``undelivered`` excludes airtime.

    :param kind: the kind of the report's request, used if the report does not name one
    """
    if known := report.kind or kind:
        return known
    if report.delivery_status is DeliveryStatus.BOUNCED or "@" in report.recipient:
        return "email"
    return "sms" if report.status == "undelivered" else None


def _is_listed(report: Report, listed: frozenset[str]) -> bool:
    facts = set(_clauses(report.status))
    for cause in dict.fromkeys((report.reason or "", *report.causes)):
        if len(cause) > MAX_REASON:
            # The clauses after the cut may name another cause.
            return False
        text = _TRACE.sub(" ", cause)
        # In the reason of an SMS, the digits of a reply may be a part of the number.
        is_bounce = report.delivery_status is DeliveryStatus.BOUNCED
        if _TEMPORARY_REPLY.search(text) if is_bounce else _has_other_code(text, listed):
            return False
        codes, clauses = _CODE.findall(text), list(_clauses(_CODE.sub(" ", text)))
        whole = " ".join(clauses)
        facts.update(codes, [whole] if whole in listed else clauses)
    return facts <= listed | _NEUTRAL and not facts.isdisjoint(listed)


def _has_other_code(text: str, listed: frozenset[str]) -> bool:
    """Return whether a text has a code of a cause that may be another one.

    The meaning of 1 is the same everywhere. Any other code is a gateway's own, and the next clause has to explain it.
    """
    text = _WRITTEN_NUMBER.sub(" ", _CAMEL_CASE.sub(" ", text))
    for match in _NETWORK_CODE.finditer(text):
        network, code = match.groups()
        if network and code not in _NUMBER_CODES.get(network.lower(), ("1",)):
            return True
        if code != "1" and next(_clauses(text[match.end() :]), None) not in listed:
            return True
    return False


def _configured(option: str, default: str) -> frozenset[str]:
    from airflow.sdk.configuration import conf

    configured: str | None = conf.get("cpaas", option, fallback=None)
    parts = [part.strip() for part in (default if configured is None else configured).split(",")]
    reasons = {part if _CODE.fullmatch(part) else " ".join(_clauses(part)) for part in parts}
    return frozenset(reasons - {""})
