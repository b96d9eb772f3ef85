"""The campaigns' own figures beside those of the service, which counts what it really accepted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.sandbox import Sandbox

PAGE = 1000
NOT_REACHED = {"undelivered", "bounced"}


class Line(NamedTuple):
    """One line of the final table: what the DAG's summary says, and what it must be equal to."""

    label: str
    campaign: Any
    other: Any
    source: str

    @property
    def agrees(self) -> bool:
        """Whether both say the same."""
        return self.campaign is not None and self.campaign == self.other


def everything_in(sandbox: Sandbox, box: str) -> Iterator[dict[str, Any]]:
    """Yield all items of an inbox."""
    offset = 0
    while True:
        page = sandbox.inbox(box, limit=PAGE, offset=offset)
        yield from page["items"]
        offset += PAGE
        if offset >= page["total"]:
            return


def compare(figures: dict[str, Any], sandbox: Sandbox, rows: int, refused: dict[str, list[str]]) -> list[Line]:
    """Return the table's lines of the customer campaign; what the service cannot know must add up instead.

    :param rows: rows of the CSV, counted by somebody else
    :param refused: the recipients the service was told to refuse, by channel
    """
    counters = sandbox.counters()
    lookups = list(everything_in(sandbox, "lookups"))
    check, contacts, sms, email = (figures[step] for step in ("check", "contacts", "sms", "email"))
    outcomes = _outcomes(check)
    to_messages = round(counters["charged"] - sum(item["charge"] for item in lookups), 4)
    disturbed = sum(item["answer"]["dnd"] for item in lookups)
    return [
        Line("Rows checked", _sum(check, "recipients", "invalid_rows", "duplicates"), rows, "the file"),
        Line("  invalid, set aside", check.get("invalid_rows"), outcomes["invalid_row"], "outcome file"),
        Line("  duplicates, set aside", check.get("duplicates"), outcomes["duplicate"], "outcome file"),
        Line("Contacts created", contacts.get("created"), counters["contacts"]["created"], "service"),
        Line("Contacts updated", contacts.get("updated"), counters["contacts"]["updated"], "service"),
        Line("  of all that were sound", _sum(contacts, "created", "updated"), check.get("recipients"), "the check"),
        Line("Numbers looked up", _sum(sms, "recipients", "dnd"), counters["lookups"], "service"),
        Line("  skipped: do not disturb", sms.get("dnd"), disturbed, "service"),
        *_messages("SMS", sms, sandbox, "sms", counters, refused["sms"]),
        *_delivered("SMS", figures.get("sms_delivered", {}), sandbox, "sms"),
        *_messages("Emails", email, sandbox, "email", counters, refused["email"]),
        *_delivered("Emails", figures.get("email_delivered", {}), sandbox, "email"),
        Line("Charge for messages", figures["charge"], to_messages, "service"),
        Line("Balance", figures["balance"], counters["balance"], "service"),
    ]


def compare_parts(
    figures: dict[str, Any], sandbox: Sandbox, before: dict[str, Any], arrived: int, refused: list[str]
) -> list[Line]:
    """Return the table's lines of the mapped campaign.

    :param before: the service's counters before it
    :param arrived: how many SMS had arrived before it
    :param refused: the numbers the service was told to refuse
    """
    counters = sandbox.counters()
    newest = list(everything_in(sandbox, "sms"))
    reached = {item["recipient"] for item in newest[: len(newest) - arrived]}
    sent = counters["sms"]["recipients"] - before["sms"]["recipients"]
    charge = round(counters["charged"] - before["charged"], 4)
    return [
        Line(f"SMS sent in {figures['parts']} parts", figures["sent"], sent, "service"),
        Line("  to different people", figures["sent"], len(reached), "inbox"),
        Line("  rejected", figures["rejected"], len(set(refused) - reached), "refused, not in inbox"),
        Line("  in doubt or not sent", _sum(figures, "unknown_recipients", "not_sent"), 0, "nothing went wrong"),
        Line("  charge", figures["charge"], charge, "service"),
    ]


def _messages(
    name: str, report: dict[str, Any], sandbox: Sandbox, channel: str, counters: dict[str, Any], refused: list[str]
) -> list[Line]:
    reached = {item["recipient"] for item in everything_in(sandbox, channel)}
    return [
        Line(f"{name} sent", report.get("sent"), counters[channel]["recipients"], "service"),
        Line("  to different people", report.get("sent"), len(reached), "inbox"),
        Line("  rejected", report.get("rejected"), len(set(refused) - reached), "refused, not in inbox"),
        Line("  in doubt or not sent", _sum(report, "unknown_recipients", "not_sent"), 0, "nothing went wrong"),
    ]


def _delivered(name: str, report: dict[str, Any], sandbox: Sandbox, channel: str) -> list[Line]:
    """Compare what the receiver was told with what the service says became of each recipient."""
    became = {one["recipient"].lower(): one["outcome"] for one in _fates(sandbox, channel)}
    failed = {recipient for recipient, outcome in became.items() if outcome in NOT_REACHED}
    named = {line["recipient"] for line in _lines(report) if line["outcome"] in NOT_REACHED}
    return [
        Line(f"{name} delivered", report.get("delivered"), len(became) - len(failed), "service"),
        Line(f"{name} undelivered", report.get("undelivered"), len(failed), "service"),
        Line("  who, by the outcome file", len(named), len(named & failed), "service"),
        Line("  not heard of", _sum(report, "in_flight", "unreported"), 0, "all were reported"),
        Line("  reported as both", report.get("conflicts"), 0, "nobody is both"),
    ]


def _fates(sandbox: Sandbox, channel: str) -> Iterator[dict[str, Any]]:
    """Yield what became of each recipient."""
    after: int | None = 0
    while after is not None:
        page = sandbox.control("GET", f"outcomes/{channel}?limit={PAGE}&after={after}")
        yield from page["items"]
        after = page["next"]


def _outcomes(report: dict[str, Any]) -> Counter[str]:
    """Count the outcomes in the file a campaign left."""
    return Counter(line["outcome"] for line in _lines(report))


def _lines(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the lines of the outcome file a report names."""
    path = report.get("results_path")
    return [] if path is None else [json.loads(line) for line in _local(path).read_text().splitlines()]


def _local(path: str) -> Path:
    return Path(path.removeprefix("file://"))


def _sum(report: dict[str, Any], *names: str) -> int | None:
    counts = [report.get(name) for name in names]
    return None if None in counts else sum(count for count in counts if count)
