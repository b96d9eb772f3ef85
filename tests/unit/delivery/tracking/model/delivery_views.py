"""Whatever shows what became of messages, beside the oracle: sensors, files, sources, events, pages and commands."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import io
import json
import re
from argparse import Namespace
from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from airflow.sdk.exceptions import AirflowFailException, AirflowSensorTimeout

from cpaas_provider.cli.deliveries import show
from cpaas_provider.database.recipients.suppressions import SuppressionTable
from cpaas_provider.sensors._delivery_status import write_results
from cpaas_provider.sensors.delivery import DeliverySensor
from cpaas_provider.sources.base import SourceError
from cpaas_provider.sources.delivery_events import DeliveryEventSource
from cpaas_provider.sources.lists import ListSource
from cpaas_provider.sources.results_file import as_results_path
from cpaas_provider.task_groups.undelivered import UndeliveredSource
from tests.unit.delivery.tracking.model.delivery_oracle import Range
from tests.unit.delivery.tracking.model.delivery_records import REACHED
from tests.unit.delivery.tracking.model.delivery_world import (
    ADDRESSES,
    CONNECTIONS,
    RECIPIENTS,
    DeliveryWorld,
)

SHARES = ((None, False), (None, True), (0.34, False), (0.5, True), (1.0, False))
"""What sensors wait for: ``min_delivered`` and ``wait_for_unknown``."""
_VERDICTS = {"done": "succeed", "missed": "fail", "timed_out": "wait"}
_FIGURES = ("expected", "delivered", "undelivered", "open")
_WAITING = {"waiting for reports": True, "reports missing": True, "all reported": False}
"""What the words of pages and commands say: whether reports are waited for."""
_TILE = re.compile(r"<dt>(Accepted|Delivered|Undelivered|Open|Unknown)</dt><dd>([0-9,]+)")
_CELL = re.compile(r'data-name="(Accepted|Delivered|Undelivered|Open|Unknown)">([0-9,]+)')
_STATE = re.compile(r'<span class="state s-[a-z-]+">([^<]*)</span>')
_LINK = re.compile(r'/campaigns/([a-z0-9-]+)"')
_FILTERS = dict.fromkeys(("conn_id", "dag_id", "run_id", "since", "until"))

Figures = dict[str, int]

LOOKS = ("pages", "commands", "sensors", "files", "suppressions")
"""Groups of views. A random example looks at some, because all of them take longer than what happens."""


class DeliveryViews:
    """Compares. Each disagreement is a line that names the campaign, what shows it, and both figures.

    :param folder: where results files are written
    :param looks: the groups of views that are compared with the oracle and the JSON of the pages
    :param is_thorough: whether commands print, and are read from what they print
    """

    def __init__(
        self, world: DeliveryWorld, folder: Path, *, looks: Collection[str] = LOOKS, is_thorough: bool = False
    ) -> None:
        self._world = world
        self._oracle = world.oracle
        self._folder = folder
        self._looks = frozenset(looks)
        self._is_thorough = is_thorough

    def disagreements(self) -> list[str]:
        """Return how what is shown differs from the oracle, and from one another."""
        if self._world.database.is_down:
            return list(self._of_outage())
        known = self._known()
        shown = {campaign: {"JSON": self._json(campaign)} for campaign in known}
        lists: dict[str, dict[str, Figures]] = {}
        if "pages" in self._looks:
            lists["page"] = {campaign: self._page(campaign) for campaign in known}
            lists["list of pages"] = self._page_list(known)
        if "commands" in self._looks:
            lists["command"] = {campaign: self._command(campaign) for campaign in known}
            lists["list of commands"] = self._listed(known)
        if "sensors" in self._looks:
            lists["sensor"] = {campaign: self._sensor_counts(campaign) for campaign in known}
        for view, by_campaign in lists.items():
            for campaign, figures in by_campaign.items():
                shown[campaign][view] = figures
        lines = [line for campaign in known for line in self._of_campaign(campaign, shown[campaign])]
        return [*lines, *(self._of_suppressions() if "suppressions" in self._looks else ())]

    def _known(self) -> list[str]:
        """Return the campaigns whose figures are established: no try is at work, and the database has them."""
        return [
            name
            for name, campaign in self._oracle.campaigns.items()
            if campaign.has_ended and not campaign.is_continued and not campaign.is_pruned
        ]

    def _of_outage(self) -> Iterator[str]:
        """Yield which sensors end while the database refuses: what they wait for goes on."""
        for campaign in self._known():
            if self._oracle.accepted_recipients(campaign):
                looks = {mode: self._look(mode, campaign, None, with_unknown=False) for mode in ("poke", "reschedule")}
                for mode, verdict in looks.items():
                    if verdict != "wait":
                        yield f"{campaign}: {mode} while the database refuses: {verdict}"

    def _of_campaign(self, campaign: str, shown: dict[str, Figures]) -> Iterator[str]:
        lines = self._lines(campaign) if "files" in self._looks else None
        if lines is not None:
            shown["file"] = _counted(lines, shown["JSON"]["expected"])
        for view, figures in shown.items():
            for line in self._of_figures(campaign, figures):
                yield f"{campaign}: {view}: {line}"
            if any(figure != shown["JSON"].get(key, figure) for key, figure in figures.items()):
                yield f"{campaign}: {view} shows {figures}, the JSON {shown['JSON']}"
        if self._oracle.is_free(campaign):
            return
        if lines is not None:
            for line in (*self._of_lines(campaign, lines), *self._of_sources(campaign, lines)):
                yield f"{campaign}: {line}"
        if "sensors" in self._looks:
            for line in self._of_verdicts(campaign, shown["sensor"]):
                yield f"{campaign}: {line}"

    # Figures.

    def _of_figures(self, campaign: str, shown: Figures) -> Iterator[str]:
        if shown["delivered"] + shown["undelivered"] + shown["open"] != shown["expected"] or min(shown.values()) < 0:
            yield f"the figures do not add up: {shown}"
        most = self._oracle.most_recipients(campaign)
        if shown["expected"] > most:
            yield f"expected is {shown['expected']}, but the requests have {most} recipients"
        if self._oracle.is_free(campaign):
            return
        expected: dict[str, Any] = {**self._oracle.figures(campaign)}
        if not self._oracle.is_ambiguous(campaign):
            unknown = len(self._oracle.unknown_recipients(campaign))
            is_waiting = bool(expected["open"].least or unknown)
            expected |= {"unknown": Range(unknown, unknown), "is_waiting": Range(is_waiting, is_waiting)}
        for key, figure in expected.items():
            if key in shown and shown[key] not in figure:
                yield f"{key} is {shown[key]}, not {figure}"

    def _get(self, path: str, query: str = "", accept: str = "text/html") -> str:
        response = self._world.setting.get(path, query, accept)
        assert response.status == 200, f"{path} answers {response.status}"
        return response.text

    def _json(self, campaign: str) -> Figures:
        query = f"campaign={self._world.reference_of(campaign)}"
        [line] = json.loads(self._get("/deliveries", query, "application/json"))
        return _of_line(line)

    def _page(self, campaign: str) -> Figures:
        return _read_html(self._get(f"/campaigns/{self._world.reference_of(campaign)}"), _TILE)

    def _page_list(self, campaigns: list[str]) -> dict[str, Figures]:
        """Return the figures of several campaigns on one page."""
        if len(campaigns) < 2:
            return {}
        by_reference = {self._world.reference_of(campaign): campaign for campaign in campaigns}
        page = self._get("/deliveries", "&".join(f"campaign={reference}" for reference in by_reference))
        rows = [row for row in page.split("<tr>") if _LINK.search(row)]
        return {by_reference[_LINK.search(row)[1]]: _read_html(row, _CELL) for row in rows}  # type: ignore[index]  # found above

    def _command(self, campaign: str) -> Figures:
        return _of_line(self._printed("campaigns_show", reference=self._world.reference_of(campaign))[0])

    def _listed(self, campaigns: list[str]) -> dict[str, Figures]:
        """Return the figures of all campaigns by one command."""
        by_reference = {self._world.reference_of(campaign): campaign for campaign in campaigns}
        lines = self._printed("campaigns_list", limit=100, single_messages=True, **_FILTERS) if campaigns else []
        return {by_reference[line["reference"]]: _of_line(line) for line in lines if line["reference"] in by_reference}

    def _printed(self, name: str, **arguments: Any) -> list[dict[str, Any]]:
        """Return what a command prints as JSON."""
        command, given = getattr(show, f"cpaas_{name}"), Namespace(output="json", verbose=False, **arguments)
        if self._is_thorough:
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                command(given)
            return list(json.loads(printed.getvalue()))
        lines: list[dict[str, Any]] = []
        # Airflow's console takes longer than the command.
        with (
            mock.patch.object(show, "print_lines", lambda found, *_: lines.extend(found)),
            mock.patch.object(show, "print_record", lambda record, *_: lines.append(record)),
            mock.patch.object(show, "say"),
        ):
            inspect.unwrap(command)(given)
        return lines

    # Sensors.

    def _send_result(self, campaign: str) -> dict[str, Any]:
        reference, accepted = self._world.reference_of(campaign), len(self._oracle.accepted_recipients(campaign))
        common = {"unknown_recipients": self._world.unknown_at_end.get(campaign, 0), "delivery_reports": "callback"}
        if self._oracle.campaigns[campaign].is_single:
            return {**common, "references": [reference], "recipients": accepted}
        return {**common, "reference": reference, "sent": accepted}

    def _sensor(self, mode: str, campaign: str, share: float | None, *, with_unknown: bool) -> DeliverySensor:
        return DeliverySensor(
            task_id="delivered",
            send_result=self._send_result(campaign),
            min_delivered=share,
            wait_for_unknown=with_unknown,
            mode=mode,
            deferrable=False,
        )

    def _sensor_counts(self, campaign: str) -> Figures:
        if not self._oracle.accepted_recipients(campaign):
            return _only_figures(self._json(campaign))
        sensor = self._sensor("poke", campaign, None, with_unknown=False)
        snapshot = sensor._read_status({})  # type: ignore[typeddict-item]  # read of a mode that does not reschedule
        assert snapshot is not None
        return _figures(snapshot.sent.criteria.summary(snapshot.counts))

    def _of_verdicts(self, campaign: str, figures: Figures) -> Iterator[str]:
        if not self._oracle.accepted_recipients(campaign):
            return
        for share, with_unknown in SHARES:
            name = f"min_delivered={share}, wait_for_unknown={with_unknown}"
            verdict = self._oracle.verdict(campaign, share, with_unknown=with_unknown)
            looks = {"reschedule": self._look("reschedule", campaign, share, with_unknown=with_unknown)}
            if share is None:
                looks["poke"] = self._look("poke", campaign, share, with_unknown=with_unknown)
                looks["deferrable"], of_trigger = self._trigger(campaign, share, with_unknown=with_unknown)
                if not with_unknown and of_trigger != figures:
                    yield f"the trigger shows {of_trigger}, the sensor {figures}"
            else:
                looks["deferrable"], _ = self._trigger(campaign, share, with_unknown=with_unknown)
            for mode, shown in looks.items():
                if verdict is not None and shown != verdict:
                    yield f"{mode} with {name}: {shown}, not {verdict}"
            if len(set(looks.values())) > 1:
                yield f"sensors with {name} differ: {looks}"

    def _look(self, mode: str, campaign: str, share: float | None, *, with_unknown: bool) -> str:
        """Have a sensor look once: one that pokes looks twice, one that reschedules is made anew for each look."""
        sensor = self._sensor(mode, campaign, share, with_unknown=with_unknown)
        before = datetime.now(UTC) - timedelta(minutes=1)
        instance = SimpleNamespace(get_first_reschedule_date=lambda context: before, xcom_push=lambda **_: None)
        context: Any = {"ti": instance}
        try:
            looks = [bool(sensor.poke(context)) for _ in range(2 if mode == "poke" else 1)]
        except AirflowFailException:
            return "fail"
        except AirflowSensorTimeout:
            return "time out"
        return "succeed" if looks[-1] else "wait"

    def _trigger(self, campaign: str, share: float | None, *, with_unknown: bool) -> tuple[str, Figures]:
        """Have the poller of the triggerer look for the last time."""
        past = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
        trigger = self._sensor("poke", campaign, share, with_unknown=with_unknown)._trigger(past)

        async def first() -> dict[str, Any]:
            event = await anext(trigger.run())
            payload: dict[str, Any] = event.payload
            return payload

        payload = self._world.setting.loop.run(asyncio.wait_for(first(), 300))
        return _VERDICTS[payload["outcome"]], _figures(payload)

    # Suppression list.

    def _of_suppressions(self) -> Iterator[str]:
        table: Any = SuppressionTable(self._world.database)  # type: ignore[arg-type]  # reads as a database does
        for conn_id in CONNECTIONS:
            for recipients, channel in ((RECIPIENTS, "sms"), (tuple(ADDRESSES.values()), "email")):
                listed = table.find(recipients, conn_id, channel)
                for recipient in recipients:
                    expected = self._oracle.is_listed(conn_id, recipient)
                    if expected is not None and (recipient in listed) != expected:
                        is_listed = "is" if recipient in listed else "is not"
                        yield f"{recipient} {is_listed} on the suppression list of {conn_id}"

    # Recipients.

    def _path(self, campaign: str) -> Path:
        return self._folder / f"{campaign}.jsonl"

    def _lines(self, campaign: str) -> list[dict[str, Any]]:
        path = self._path(campaign)
        write_results([self._world.reference_of(campaign)], as_results_path(str(path)))
        return [json.loads(line) for line in path.read_text().splitlines()]

    def _of_lines(self, campaign: str, lines: list[dict[str, Any]]) -> Iterator[str]:
        erased = self._oracle.campaigns[campaign].erased
        shown = {(line["reference"], line["recipient"].lstrip("+")): line for line in lines if line["recipient"]}
        for request, recipient, status in self._oracle.counted_rows(campaign):
            line = shown.pop((request.reference, recipient), None)
            reported = (line["outcome"] if line else None) or "in_flight"
            if recipient in erased or len(request.recipients) == 1:
                # An erased one has no name, and the only one of a request need have none.
                continue
            if reported != (status or "in_flight"):
                yield f"file: {recipient} is {reported}, not {status}"
            if line and line["conflict"] != (recipient in self._oracle.conflicts(campaign)):
                yield f"file: conflict of {recipient} is {line['conflict']}"
        for (reference, recipient), line in shown.items():
            if recipient not in erased and not self._oracle.is_ambiguous(campaign):
                yield f"file: has a line for {recipient}, who does not count: {line['outcome']} of {reference}"
        arguments = {**_FILTERS, "reference": self._world.reference_of(campaign), "outcome": None, "limit": 100}
        printed = sorted(line["outcome"] for line in self._printed("deliveries_show", **arguments))
        in_file = sorted(line["outcome"] for line in lines)
        if printed != in_file:
            yield f"deliveries show prints {printed}, the file has {in_file}"

    def _of_sources(self, campaign: str, lines: list[dict[str, Any]]) -> Iterator[str]:
        erased = self._oracle.campaigns[campaign].erased
        everybody = ListSource([{"phone": f"+{number}", "email": address} for number, address in ADDRESSES.items()])
        column = "email" if self._oracle.campaigns[campaign].operation == "send_email" else "phone"
        source = UndeliveredSource(everybody, str(self._path(campaign)), column=column)
        unnamed = {request.recipients[0] for request in self._oracle.requests.values() if len(request.recipients) == 1}
        people = ADDRESSES.values() if column == "email" else RECIPIENTS
        expected = self._oracle.goes_to_next_channel(campaign, people)
        # Nothing names the recipient that a message reached, so nobody gets another one.
        is_refused = any(line["outcome"] in REACHED and line["recipient"] == "" for line in lines)
        try:
            shown = _rows(source, column)
        except SourceError as error:
            if not is_refused:
                yield f"UndeliveredSource: {error}"
        else:
            if is_refused or (shown ^ expected) - erased - unnamed:
                yield f"UndeliveredSource has {sorted(shown)}, not {sorted(expected)}"
        shown = _rows(DeliveryEventSource(self._world.reference_of(campaign)), "recipient")
        expected = self._oracle.undelivered(campaign)
        if (shown ^ expected) - erased - unnamed:
            yield f"DeliveryEventSource has {sorted(shown)}, not {sorted(expected)}"

    # Events.

    def publish(self, dies: tuple[int, str] | None = None) -> list[str]:
        """Have events published, and return how they differ from the oracle."""
        lines: list[str] = []
        due = {name: self._oracle.must_finish(name) for name in self._oracle.campaigns}
        was_finished = {name for name, campaign in self._oracle.campaigns.items() if campaign.is_finished}
        by_reference = {self._world.reference_of(name): name for name in self._oracle.campaigns}
        events = self._world.publish(dies=dies)
        finished = [event for event in events if event.kind == "campaign_finished"]
        for event in finished:
            name = by_reference[event.campaign]
            self._oracle.note_finished(name)
            if self._oracle.campaigns[name].is_pruned:
                # Nothing is left by which it could be known.
                continue
            if name in was_finished:
                lines.append(f"{name}: campaign_finished comes twice")
            elif due[name] is False:
                lines.append(f"{name}: campaign_finished comes while it is open: {self._standing(name)}")
            elif not self._oracle.is_free(name):
                lines += [
                    f"{name}: campaign_finished says {key} {event.facts[key]}, not {expected}"
                    for key, expected in self._oracle.figures(name).items()
                    if key in event.facts and event.facts[key] not in expected
                ]
        names = {by_reference[event.campaign] for event in finished}
        missing = {name for name, is_due in due.items() if is_due} - names - was_finished
        lines += [f"{name}: campaign_finished does not come: {self._standing(name)}" for name in missing]
        batches = {event.key for event in events if event.kind != "campaign_finished"}
        self._world.keys += sorted(batches)
        return lines + list(self._of_batches())

    def _of_batches(self) -> Iterator[str]:
        """Compare the rows of all batches with who is undelivered, or has clicked."""
        shown: set[tuple[str, str]] = set()
        for key in dict.fromkeys(self._world.keys):
            source = DeliveryEventSource(key)
            with source.open() as table:
                rows = [row.values for row in table.rows(["campaign", "recipient", "outcome"])]  # type: ignore[union-attr]
            shown |= {(campaign, recipient.lstrip("+")) for campaign, recipient, _ in rows}
        for name, campaign in self._oracle.campaigns.items():
            if self._oracle.is_free(name) or campaign.is_continued:
                continue
            names = {recipient for reference, recipient in shown if reference == self._world.reference_of(name)}
            if campaign.is_single and not campaign.has_ended:
                # Nothing but its reports is known of it.
                continue
            undelivered, clicked = self._oracle.undelivered(name), self._oracle.clicked(name)
            if campaign.operation == "buy_airtime":
                clicked = self._oracle.reached(name)
            if surplus := names - undelivered - clicked:
                yield f"{name}: batches hold {sorted(surplus)}, neither undelivered nor clicked"
            unnamed = {recipient for request, recipient, _ in self._oracle.rows(name) if len(request.recipients) == 1}
            if missing := (undelivered | clicked) - names - campaign.erased - unnamed:
                yield f"{name}: batches lack {sorted(missing)}"

    def _standing(self, name: str) -> str:
        figures = ", ".join(f"{key} {figure}" for key, figure in self._oracle.figures(name).items())
        return f"{figures}, {len(self._oracle.unknown_recipients(name))} unknown"


def _figures(found: dict[str, Any]) -> Figures:
    figures = {key: found[key] for key in ("expected", "delivered", "undelivered")}
    return {**figures, "open": found["in_flight"] + found["unreported"]}


def _only_figures(found: Figures) -> Figures:
    return {key: found[key] for key in _FIGURES}


def _of_line(record: dict[str, Any]) -> Figures:
    figures = {key: record[key] for key in ("delivered", "undelivered", "open", "unknown")}
    return {**figures, "expected": record["accepted"], "is_waiting": _WAITING[record["state"]]}


def _read_html(html: str, pattern: re.Pattern[str]) -> Figures:
    tiles = {name.lower(): int(number.replace(",", "")) for name, number in pattern.findall(html)}
    state = _STATE.search(html)
    assert state is not None, "the page shows no state"
    figures = {key: tiles[key] for key in ("delivered", "undelivered", "open", "unknown")}
    expected = tiles["delivered"] + tiles["undelivered"] + tiles["open"]
    return {**figures, "expected": expected, "is_waiting": _WAITING[state[1]]}


def _counted(lines: Iterable[dict[str, Any]], expected: int) -> Figures:
    """Return the figures that a file's lines add up to."""
    outcomes = [line["outcome"] for line in lines]
    delivered = sum(outcome in {"delivered", "opened", "clicked"} for outcome in outcomes)
    undelivered = sum(outcome in {"undelivered", "bounced"} for outcome in outcomes)
    open_ = expected - delivered - undelivered
    return {"expected": expected, "delivered": delivered, "undelivered": undelivered, "open": open_}


def _rows(source: Any, column: str) -> set[str]:
    with source.open() as table:
        return {str(row.values[0]).lstrip("+") for row in table.rows([column])}
