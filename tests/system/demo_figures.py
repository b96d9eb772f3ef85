"""The campaigns' own figures beside those of the service, which counts what it really accepted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.reading import results_in
from tests.sandbox import Sandbox

PAGE = 1000
NOT_DELIVERED = {"undelivered", "bounced"}


class Line(NamedTuple):
    """One line of the final table: a figure of the DAG's summary, and the figure it must be equal to."""

    label: str
    campaign: Any
    other: Any
    source: str

    @property
    def agrees(self) -> bool:
        """Whether both figures are equal."""
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


def compare(
    figures: dict[str, Any],
    sandbox: Sandbox,
    rows: int,
    refused: dict[str, list[str]],
    customers: dict[int, dict[str, str]],
    written: list[dict[str, Any]],
) -> list[Line]:
    """Return the table's lines of the customer campaign; what the service cannot know must add up instead.

    :param rows: rows of the CSV, counted independently
    :param customers: these rows, by their numbers
    :param written: lines of the contact sync's results file
    :param refused: the recipients that the service is set to reject, by channel
    """
    counters = sandbox.counters()
    lookups = list(everything_in(sandbox, "lookups"))
    check, contacts, sms, email = (figures[step] for step in ("check", "contacts", "sms", "email"))
    outcomes = _outcomes(check)
    to_messages = round(counters["charged"] - sum(item["charge"] for item in lookups), 4)
    marked_dnd = sum(item["answer"]["dnd"] for item in lookups)
    return [
        Line("Rows checked", _sum(check, "recipients", "invalid_rows", "duplicates"), rows, "CSV file"),
        Line("  invalid", check.get("invalid_rows"), outcomes["invalid_row"], "results file"),
        Line("  duplicates", check.get("duplicates"), outcomes["duplicate"], "results file"),
        Line("Contacts created", contacts.get("created"), counters["contacts"]["created"], "service"),
        Line("Contacts updated", contacts.get("updated"), counters["contacts"]["updated"], "service"),
        Line("  all rows, with invalid ones", _sum(contacts, "created", "updated", "invalid_rows"), rows, "CSV file"),
        Line(
            "  equal in every cell",
            _sum(contacts, "created", "updated"),
            same_as_csv(sandbox, customers, written),
            "CSV file",
        ),
        Line("Numbers looked up", _sum(sms, "recipients", "dnd"), counters["lookups"], "service"),
        Line("  skipped: DND", sms.get("dnd"), marked_dnd, "service"),
        *_messages("SMS", sms, sandbox, "sms", counters, refused["sms"]),
        *_delivered("SMS", figures.get("sms_delivered", {}), sandbox, "sms"),
        *_messages("Emails", email, sandbox, "email", counters, refused["email"]),
        *_delivered("Emails", figures.get("email_delivered", {}), sandbox, "email"),
        Line("Charge for messages", figures["charge"], to_messages, "service"),
        Line("Balance", figures["balance"], counters["balance"], "service"),
    ]


def same_as_csv(sandbox: Sandbox, customers: dict[int, dict[str, str]], written: list[dict[str, Any]]) -> int:
    """Count the rows of the service's contact list that are as the CSV has them, cell by cell.

    What the CSV says is read here by rules of its own: it shares no code with what filled the list.
    """
    listed = {row["id"]: row["columns"] for row in everything_in(sandbox, "contacts")}
    same = 0
    for line in written:
        if line["row_id"] in listed:
            customer = customers[line["row"]]
            cells = {name: listed[line["row_id"]].get(column) for name, column in CELLS.items()}
            same += line["key"] == customer["customer_id"] and cells == _expected(customer)
    return same if same == len(listed) else -1


CELLS = {
    "name": "col_7f3a01",
    "phone": "col_7f3a02",
    "email": "col_7f3a03",
    "birthday": "col_7f3a04",
    "plan": "col_7f3a05",
    "tags": "col_7f3a06",
    "points": "col_7f3a08",
}
_COUNTRY_CODES = {"NG": "234", "": "234", "GH": "233", "GB": "44", "US": "1"}


def _expected(customer: dict[str, str]) -> dict[str, Any]:
    """Return the cells of a customer, ``None`` for those that are empty."""
    text = {name: customer.get(name, "").strip() or None for name in CELLS}
    local, _, domain = (text["email"] or "").partition("@")
    points = float(text["points"].replace(",", "")) if text["points"] else None
    tags = list(dict.fromkeys(tag.strip() for tag in (text["tags"] or "").split(";") if tag.strip()))
    return {
        **text,
        "phone": _digits(text["phone"] or "", _COUNTRY_CODES[customer.get("country", "").strip()]),
        "email": f"{local}@{domain.lower()}" if domain else text["email"],
        "points": int(points) if points is not None and points.is_integer() else points,
        "tags": tags or None,
    }


def _digits(written: str, country_code: str) -> str | None:
    """Return a number as its digits with the country code."""
    digits = re.sub(r"\D", "", re.sub(r"\.0$", "", written))
    if written.startswith("+"):
        return digits
    if digits.startswith("00"):
        return digits[2:]
    national = digits.removeprefix("0")
    return country_code + national if digits.startswith("0") or len(digits) <= 10 else digits or None


def compare_parts(
    figures: dict[str, Any], sandbox: Sandbox, before: dict[str, Any], arrived: int, refused: list[str]
) -> list[Line]:
    """Return the table's lines of the mapped campaign.

    :param before: the service's counters before it
    :param arrived: how many SMS had arrived before it
    :param refused: the numbers that the service is set to reject
    """
    counters = sandbox.counters()
    newest = list(everything_in(sandbox, "sms"))
    reached = {item["recipient"] for item in newest[: len(newest) - arrived]}
    sent = counters["sms"]["recipients"] - before["sms"]["recipients"]
    charge = round(counters["charged"] - before["charged"], 4)
    return [
        Line(f"SMS sent in {figures['partitions']} partitions", figures["sent"], sent, "service"),
        Line("  different recipients", figures["sent"], len(reached), "inbox"),
        Line("  rejected", figures["rejected"], len(set(refused) - reached), "rejected, not in inbox"),
        Line("  unknown or not sent", _sum(figures, "unknown_recipients", "not_sent"), 0, "no failure"),
        Line("  charge", figures["charge"], charge, "service"),
    ]


def _messages(
    name: str, report: dict[str, Any], sandbox: Sandbox, channel: str, counters: dict[str, Any], refused: list[str]
) -> list[Line]:
    reached = {item["recipient"] for item in everything_in(sandbox, channel)}
    return [
        Line(f"{name} sent", report.get("sent"), counters[channel]["recipients"], "service"),
        Line("  different recipients", report.get("sent"), len(reached), "inbox"),
        Line("  rejected", report.get("rejected"), len(set(refused) - reached), "rejected, not in inbox"),
        Line("  unknown or not sent", _sum(report, "unknown_recipients", "not_sent"), 0, "no failure"),
    ]


def _delivered(name: str, report: dict[str, Any], sandbox: Sandbox, channel: str) -> list[Line]:
    """Compare the received reports with the outcome of each recipient at the service."""
    became = {one["recipient"].lower(): one["outcome"] for one in _each_outcome(sandbox, channel)}
    failed = {recipient for recipient, outcome in became.items() if outcome in NOT_DELIVERED}
    named = {line["recipient"] for line in _lines(report) if line["outcome"] in NOT_DELIVERED}
    return [
        Line(f"{name} delivered", report.get("delivered"), len(became) - len(failed), "service"),
        Line(f"{name} undelivered", report.get("undelivered"), len(failed), "service"),
        Line("  named in results file", len(named), len(named & failed), "service"),
        Line("  in flight or unreported", _sum(report, "in_flight", "unreported"), 0, "all reported"),
        Line("  reported as both", report.get("conflicts"), 0, "no conflict"),
    ]


def _each_outcome(sandbox: Sandbox, channel: str) -> Iterator[dict[str, Any]]:
    """Yield the outcome of each recipient."""
    after: int | None = 0
    while after is not None:
        page = sandbox.control("GET", f"outcomes/{channel}?limit={PAGE}&after={after}")
        yield from page["items"]
        after = page["next"]


def _outcomes(report: dict[str, Any]) -> Counter[str]:
    """Count the outcomes in the file a campaign left."""
    return Counter(line["outcome"] for line in _lines(report))


def _lines(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the lines of the results file that a report names."""
    path = report.get("results_path")
    return [] if path is None else results_in(_local(path))


def _local(path: str) -> Path:
    return Path(path.removeprefix("file://"))


def _sum(report: dict[str, Any], *names: str) -> int | None:
    counts = [report.get(name) for name in names]
    return None if None in counts else sum(count for count in counts if count)
