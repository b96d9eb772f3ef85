"""What pages, JSON and command line show of a campaign, beside one another and beside the truth."""

from __future__ import annotations

import inspect
import json
import re
from argparse import Namespace
from collections.abc import Iterator
from typing import Any
from unittest import mock

from cpaas_provider.cli.deliveries import show
from tests.unit.delivery.tracking.model.delivery_records import Outcome
from tests.unit.delivery.tracking.model.delivery_world import RECIPIENTS
from tests.unit.pages.model.campaign_world import NAME, CampaignWorld

Shown = dict[str, Any]

FIGURES = ("recipients", "accepted", "delivered", "undelivered", "open", "unknown", "rejected", "not_sent")
_TILE = re.compile(r"<dt>([A-Za-z ]+)</dt><dd>([0-9,]+|\N{EN DASH})")
_CELL = re.compile(r'<td class="n" data-name="([A-Za-z ]+)">([0-9,]+|\N{EN DASH})')
_STATE = re.compile(r'<span class="state s-[a-z-]+">([^<]*)</span>')


class CampaignViews:
    """Compares what is shown.

    :param is_stored: whether the pages store what they count, as they do for large campaigns
    """

    def __init__(self, world: CampaignWorld, *, is_stored: bool) -> None:
        self._world = world
        self._setting = world.deliveries.setting
        self._is_stored = is_stored

    def disagreements(self, *, is_last: bool = True) -> list[str]:
        """Return how what is shown differs from one another, from the truth, and from what can be.

        :param is_last: look at the lists, too, which show the same figures
        """
        if self._world.recorded is None:
            return []
        outdated = []
        if self._is_stored:
            outdated = [self._page(), self._list()] if is_last else [self._page()]
        line = self._json()
        views = {"JSON": line, "command": self._command(is_last=is_last), "page": self._page()}
        if is_last:
            views["list"] = self._list()
        found = [f"{name}: {text}" for name, shown in views.items() for text in self._of_sums(shown)]
        for name, shown in views.items():
            differing = {key: (shown[key], line[key]) for key in shown if shown[key] != line[key]}
            if differing:
                found.append(f"{name} and JSON differ: {differing}")
        found += [f"outdated: {text}" for shown in outdated for text in (*self._of_sums(shown), *self._of_end(shown))]
        return [*found, *self._of_truth(line), *self._of_end(line), *self._of_polling(line)]

    def _of_sums(self, shown: Shown) -> Iterator[str]:
        if any(number is not None and number < 0 for number in map(shown.get, FIGURES)):
            yield f"a figure is below 0: {shown}"
        if shown.get("open") is not None:
            parts = shown["delivered"] + shown["undelivered"] + shown["open"]
            if parts != shown["accepted"]:
                yield f"delivered, undelivered and open are {parts}, accepted {shown['accepted']}: {shown}"
        whole = sum(shown.get(name) or 0 for name in ("accepted", "unknown", "rejected", "not_sent"))
        if whole > shown["recipients"]:
            yield f"the parts are {whole} of {shown['recipients']}: {shown}"

    def _of_truth(self, shown: Shown) -> Iterator[str]:
        world, oracle = self._world, self._world.oracle
        got = world.got()
        if shown["recipients"] != len(RECIPIENTS):
            yield f"recipients are {shown['recipients']}, not {len(RECIPIENTS)}"
        if shown["accepted"] > len(got):
            yield f"accepted are {shown['accepted']}, but the service got {len(got)}"
        if not self._is_doubtful():
            for name, true in (("delivered", world.delivered()), ("undelivered", world.undelivered())):
                if shown[name] is not None and shown[name] != len(true):
                    yield f"{name} are {shown[name]}, not {len(true)}: {shown}"
        if world.is_alive:
            return
        if world.is_settled or world.is_known_dead:
            # Whom the service got is never shown as not sent to.
            if shown["not_sent"] > len(RECIPIENTS) - len(got):
                yield f"{shown['not_sent']} are shown as not sent, but the service got {len(got)}: {shown}"
            if shown["accepted"] + shown["unknown"] < len(got):
                yield f"the service got {len(got)}, shown are {shown}"
        if world.is_known_dead and shown["state"] != "interrupted":
            yield f"the try was killed, and the state is {shown['state']}"
        if world.is_settled and not self._is_doubtful():
            accepted = oracle.accepted_recipients(NAME) if world.number else set()
            unknown_members = {
                recipient
                for request in oracle.requests.values()
                if request.outcome is Outcome.UNKNOWN
                for recipient in request.recipients
            }
            reported = {recipient for recipient in unknown_members if world.status(recipient) is not None}
            unknown = unknown_members - reported - accepted
            for name, true in (("accepted", accepted | reported), ("unknown", unknown)):
                if shown[name] != len(true):
                    yield f"{name} are {shown[name]}, not {len(true)}: {shown}"

    def _of_end(self, shown: Shown) -> Iterator[str]:
        """Nothing is shown as complete that is not."""
        world = self._world
        if shown["state"] == "all reported" and not self._is_doubtful():
            remaining = world.got() - world.delivered() - world.undelivered()
            if world.is_alive or remaining:
                yield f"all is reported, but {len(remaining)} recipients have no final status: {shown}"

    def _of_polling(self, shown: Shown) -> Iterator[str]:
        if shown["state"] == "all reported" and shown["will_change"] and not self._tries_again():
            yield f"the page polls for ever: {shown}"
        if shown["state"] == "sending" and not shown["will_change"]:
            yield f"the page does not follow a task that sends: {shown}"

    def _tries_again(self) -> bool:
        states = self._setting.task_states.values()
        return any(state.state in {"running", "queued", "up_for_retry", "deferred"} for state in states)

    def _is_doubtful(self) -> bool:
        """Tell whether the promise leaves open what became of a recipient, after an erasure."""
        return any(request.is_open_to_doubt for request in self._world.oracle.requests.values())

    # Views.

    def _get(self, path: str, query: str = "", accept: str = "text/html") -> str:
        response = self._setting.get(path, query, accept)
        assert response.status == 200, f"{path} answers {response.status}"
        return response.text

    def _json(self) -> Shown:
        line: Shown
        [line] = json.loads(self._get("/deliveries", f"campaign={self._world.reference}", "application/json"))
        return line

    def _command(self, *, is_last: bool) -> Shown:
        lines: list[Shown] = []
        with (
            mock.patch.object(show, "print_lines", lambda found, *_: lines.extend(found)),
            mock.patch.object(show, "print_record", lambda record, *_: lines.append(record)),
            mock.patch.object(show, "say"),
        ):
            given = Namespace(output="json", verbose=False, reference=self._world.reference)
            inspect.unwrap(show.cpaas_campaigns_show)(given)
            shown = lines.pop(0)
            lines.clear()
            if is_last:
                filters = dict.fromkeys(("conn_id", "dag_id", "run_id", "since", "until"))
                given = Namespace(output="json", verbose=False, limit=100, single_messages=True, **filters)
                inspect.unwrap(show.cpaas_campaigns_list)(given)
        for listed in lines:
            assert all(shown[key] == value for key, value in listed.items()), f"list {listed}, show {shown}"
        return {key: shown[key] for key in (*FIGURES, "state", "task_state", "will_change")}

    def _page(self) -> Shown:
        page = self._get(f"/campaigns/{self._world.reference}")
        return _read(page, _TILE)

    def _list(self) -> Shown:
        page = self._get("/campaigns")
        return _read(page, _CELL)


def _read(html: str, pattern: re.Pattern[str]) -> Shown:
    numbers = {
        name.lower().replace(" ", "_"): 0 if text == "\N{EN DASH}" else int(text.replace(",", ""))
        for name, text in pattern.findall(html)
    }
    state = _STATE.search(html)
    assert state is not None, "the page shows no state"
    figures = {name: numbers[name] for name in FIGURES if name in numbers}
    return {**figures, "state": state[1], "will_change": "data-refresh" in html}
