"""The campaign's own figures beside those of the service, which counts what it really accepted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.sandbox import Sandbox

PAGE = 1000


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
    """Return the table's lines; what the service cannot know must add up instead.

    :param rows: rows of the CSV, counted by somebody else
    :param refused: the recipients the service was told to refuse, by channel
    """
    counters = sandbox.counters()
    lookups = list(everything_in(sandbox, "lookups"))
    get = figures.get
    to_messages = round(counters["charged"] - sum(item["charge"] for item in lookups), 4)
    in_list = [get(f"contacts_{outcome}") or 0 for outcome in ("created", "updated", "rejected", "unknown")]
    return [
        Line("Rows read", get("read"), rows, "the file"),
        Line("  bad, set aside", get("bad"), sum((get("bad_rows") or {}).values()), "sum over reasons"),
        Line(
            "  duplicates, set aside", get("duplicates"), rows - (get("bad") or 0) - (get("customers") or 0), "the rest"
        ),
        Line("Numbers looked up", get("looked_up"), counters["lookups"], "service"),
        Line(
            "  skipped: do not disturb", get("dnd_skipped"), sum(item["answer"]["dnd"] for item in lookups), "service"
        ),
        Line("  reachable", get("reachable"), sum(in_list), "sum of contacts"),
        Line("Contacts created", get("contacts_created"), counters["contacts"]["created"], "service"),
        Line("Contacts updated", get("contacts_updated"), counters["contacts"]["updated"], "service"),
        *_messages("sms", "SMS", figures, sandbox, counters, refused["sms"]),
        *_messages("email", "Emails", figures, sandbox, counters, refused["email"]),
        Line("Charge for messages", get("charge"), to_messages, "service"),
        Line("Balance", get("balance"), counters["balance"], "service"),
    ]


def _messages(
    channel: str, name: str, figures: dict[str, Any], sandbox: Sandbox, counters: dict[str, Any], refused: list[str]
) -> list[Line]:
    reached = {item["recipient"] for item in everything_in(sandbox, channel)}
    nothing = [recipient for recipient in refused if recipient not in reached]
    return [
        Line(f"{name} sent", figures.get(f"{channel}_sent"), counters[channel]["recipients"], "service"),
        Line("  to different people", figures.get(f"{channel}_sent"), len(reached), "inbox"),
        Line("  rejected", figures.get(f"{channel}_rejected"), len(nothing), "refused, not in inbox"),
        Line("  in doubt or not sent", _left(figures, channel), 0, "nothing went wrong"),
    ]


def _left(figures: dict[str, Any], channel: str) -> int | None:
    counts = [figures.get(f"{channel}_{outcome}") for outcome in ("unknown", "not_sent")]
    return None if None in counts else sum(count for count in counts if count)
