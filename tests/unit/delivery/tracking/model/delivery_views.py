"""Whatever shows what became of messages, beside the oracle: sensors, files, sources, events, pages and commands."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from argparse import Namespace
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk.exceptions import AirflowFailException
from fastapi.testclient import TestClient

from cpaas_provider.cli.deliveries.show import cpaas_campaigns_show, cpaas_deliveries_show
from cpaas_provider.sensors._delivery_status import write_results
from cpaas_provider.sensors.delivery import DeliverySensor
from cpaas_provider.sources.delivery_events import DeliveryEventSource
from cpaas_provider.sources.lists import ListSource
from cpaas_provider.sources.results_file import as_results_path
from cpaas_provider.task_groups.undelivered import UndeliveredSource
from cpaas_provider.triggers.delivery import DeliveryTrigger
from tests.unit.delivery.tracking.model.delivery_records import RANKS
from tests.unit.delivery.tracking.model.delivery_world import RECIPIENTS, DeliveryWorld

_SHARES = (None, 0.5, 1.0)
_VERDICTS = {"done": "succeed", "missed": "fail", "timed_out": "wait"}
_OPEN = ("in_flight", "unreported")


class DeliveryViews:
    """Compares. Each disagreement is a line that names the campaign, what shows it, and both figures.

    :param folder: where results files are written
    :param pages: reads the pages
    :param is_thorough: whether to look with triggers and commands, too, which takes longer
    """

    def __init__(self, world: DeliveryWorld, folder: Path, pages: TestClient, *, is_thorough: bool = True) -> None:
        self._world = world
        self._oracle = world.oracle
        self._folder = folder
        self._pages = pages
        self._is_thorough = is_thorough

    def disagreements(self) -> list[str]:
        """Return how what is shown differs from the oracle, and from one another."""
        return [line for campaign in self._oracle.campaigns for line in self._of_campaign(campaign)]

    def _of_campaign(self, campaign: str) -> Iterator[str]:
        if self._oracle.campaigns[campaign].is_continued or self._oracle.campaigns[campaign].is_pruned:
            return
        shown = {
            "page": self._page(campaign),
            "sensor": self._sensor_counts(campaign),
        }
        if self._is_thorough:
            shown["command"] = self._command(campaign)
            shown["trigger"] = self._trigger(campaign, None)[1]
        lines = self._lines(campaign)
        shown["file"] = _counted(lines, shown["page"]["expected"])
        for view, figures in shown.items():
            for line in self._of_figures(campaign, figures):
                yield f"{campaign}: {view}: {line}"
            if figures != shown["page"]:
                yield f"{campaign}: {view} shows {figures}, the page {shown['page']}"
        if self._oracle.is_free(campaign):
            return
        for line in (*self._of_lines(campaign, lines), *self._of_sources(campaign), *self._of_verdicts(campaign)):
            yield f"{campaign}: {line}"

    # Figures.

    def _of_figures(self, campaign: str, shown: dict[str, int]) -> Iterator[str]:
        if (
            sum(shown[key] for key in ("delivered", "undelivered", *_OPEN)) != shown["expected"]
            or min(shown.values()) < 0
        ):
            yield f"the figures do not add up: {shown}"
        most = self._oracle.most_recipients(campaign)
        if shown["expected"] > most:
            yield f"expected is {shown['expected']}, but the requests have {most} recipients"
        if self._oracle.is_free(campaign):
            return
        both = {**shown, "open": shown["in_flight"] + shown["unreported"]}
        for key, expected in self._oracle.figures(campaign).items():
            if both[key] not in expected:
                yield f"{key} is {both[key]}, not {expected}"

    def _page(self, campaign: str) -> dict[str, int]:
        name = self._world.reference_of(campaign)
        response = self._pages.get(
            "/cpaas/deliveries", params={"campaign": name}, headers={"accept": "application/json"}
        )
        return _figures(response.json()[0])

    def _command(self, campaign: str) -> dict[str, int]:
        arguments = Namespace(reference=self._world.reference_of(campaign), output="json", verbose=False)
        [record] = _printed(cpaas_campaigns_show, arguments)
        figures = {key: record[key] for key in ("delivered", "undelivered", *_OPEN)}
        return _figures({**figures, "expected": sum(figures.values())})

    def _send_result(self, campaign: str) -> dict[str, Any]:
        return {
            "reference": self._world.reference_of(campaign),
            "sent": len(self._oracle.accepted_recipients(campaign)),
            "unknown_recipients": 0,
            "delivery_reports": "callback",
        }

    def _sensor(self, campaign: str, share: float | None) -> DeliverySensor:
        return DeliverySensor(
            task_id="delivered", send_result=self._send_result(campaign), min_delivered=share, deferrable=False
        )

    def _sensor_counts(self, campaign: str) -> dict[str, int]:
        sensor = self._sensor(campaign, None)
        if not self._oracle.accepted_recipients(campaign):
            return self._page(campaign)
        snapshot = sensor._read_status({})  # type: ignore[typeddict-item]  # read of a mode that does not reschedule
        assert snapshot is not None
        return _figures(sensor._criteria(snapshot.sent).summary(snapshot.counts))

    # Verdicts.

    def _of_verdicts(self, campaign: str) -> Iterator[str]:
        if not self._oracle.accepted_recipients(campaign):
            return
        for share in _SHARES:
            verdict = self._oracle.verdict(campaign, share)
            looks = {"poke": self._poke(campaign, share)}
            if self._is_thorough and share is None:
                looks["trigger"] = self._trigger(campaign, share)[0]
            for mode, shown in looks.items():
                if verdict is not None and shown != verdict:
                    yield f"{mode} with min_delivered={share}: {shown}, not {verdict}"

    def _poke(self, campaign: str, share: float | None) -> str:
        try:
            is_done = self._sensor(campaign, share).poke({})  # type: ignore[typeddict-item]  # as above
        except AirflowFailException:
            return "fail"
        return "succeed" if is_done else "wait"

    def _trigger(self, campaign: str, share: float | None) -> tuple[str, dict[str, int]]:
        if not (sent := len(self._oracle.accepted_recipients(campaign))):
            return "wait", self._page(campaign)
        past = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
        trigger = DeliveryTrigger([self._world.reference_of(campaign)], sent, share, past, 1)

        async def first() -> dict[str, Any]:
            event = await anext(trigger.run())
            payload: dict[str, Any] = event.payload
            return payload

        payload = asyncio.run(first())
        return _VERDICTS[payload["outcome"]], _figures(payload)

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
        statuses: dict[str, str] = {}
        for request, recipient, status in self._oracle.rows(campaign):
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
            if recipient not in erased:
                yield f"file: has a line for {recipient}, who does not count: {line['outcome']} of {reference}"
        for line in lines:
            recipient = line["recipient"].lstrip("+")
            if RANKS[line["outcome"]] >= RANKS.get(statuses.get(recipient, "in_flight"), 0):
                statuses[recipient] = line["outcome"]
        yield from self._of_command_lines(campaign, lines)

    def _of_command_lines(self, campaign: str, lines: list[dict[str, Any]]) -> Iterator[str]:
        if not self._is_thorough:
            return
        arguments = Namespace(
            reference=self._world.reference_of(campaign),
            output="json",
            verbose=False,
            outcome=None,
            limit=100,
            **dict.fromkeys(("conn_id", "dag_id", "run_id", "since", "until")),
        )
        printed = sorted(line["outcome"] for line in _printed(cpaas_deliveries_show, arguments))
        in_file = sorted(line["outcome"] for line in lines)
        if printed != in_file:
            yield f"deliveries show prints {printed}, the file has {in_file}"

    def _of_sources(self, campaign: str) -> Iterator[str]:
        erased = self._oracle.campaigns[campaign].erased
        everybody = ListSource([{"phone": f"+{recipient}"} for recipient in RECIPIENTS])
        source = UndeliveredSource(everybody, str(self._path(campaign)), column="phone")
        unnamed = {request.recipients[0] for request in self._oracle.requests.values() if len(request.recipients) == 1}
        shown = _rows(source, "phone")
        expected = self._oracle.goes_to_next_channel(campaign, RECIPIENTS)
        if (shown ^ expected) - erased - unnamed:
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
            undelivered, clicked = self._oracle.undelivered(name), self._oracle.clicked(name)
            if surplus := names - undelivered - clicked:
                yield f"{name}: batches hold {sorted(surplus)}, neither undelivered nor clicked"
            unnamed = {recipient for request, recipient, _ in self._oracle.rows(name) if len(request.recipients) == 1}
            if missing := (undelivered | clicked) - names - campaign.erased - unnamed:
                yield f"{name}: batches lack {sorted(missing)}"

    def _standing(self, name: str) -> str:
        figures = ", ".join(f"{key} {figure}" for key, figure in self._oracle.figures(name).items())
        return f"{figures}, {len(self._oracle.unknown_recipients(name))} unknown"


def _figures(found: dict[str, Any]) -> dict[str, int]:
    return {key: found[key] for key in ("expected", "delivered", "undelivered", *_OPEN)}


def _counted(lines: Iterable[dict[str, Any]], expected: int) -> dict[str, int]:
    """Return the figures that a file's lines add up to."""
    outcomes = [line["outcome"] for line in lines]
    delivered = sum(outcome in {"delivered", "opened", "clicked"} for outcome in outcomes)
    undelivered = sum(outcome in {"undelivered", "bounced"} for outcome in outcomes)
    in_flight = outcomes.count("in_flight")
    return {
        "expected": expected,
        "delivered": delivered,
        "undelivered": undelivered,
        "in_flight": in_flight,
        "unreported": expected - delivered - undelivered - in_flight,
    }


def _rows(source: Any, column: str) -> set[str]:
    with source.open() as table:
        return {str(row.values[0]).lstrip("+") for row in table.rows([column])}


def _printed(command: Any, arguments: Namespace) -> list[dict[str, Any]]:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        command(arguments)
    return list(json.loads(printed.getvalue()))
