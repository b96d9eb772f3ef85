"""``airflow cpaas campaigns`` and ``deliveries``, on both databases."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi.testclient import TestClient

from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.schema.delivery import RequestState
from cpaas_provider.delivery.callbacks.tokens import CallbackToken
from cpaas_provider.delivery.tracking.sent_requests import (
    SentRequest,
    TrackedSend,
    record_resolution,
    record_send_started,
)
from tests.airflow.harness.command_line import CommandLine, CommandResult
from tests.unit.database.conftest import postgres_url as postgres_url
from tests.unit.delivery.report_builders import (
    ADA,
    OBI,
    UMA,
    finish_send,
    report,
    save_reports,
    save_requests,
    start_send,
)
from tests.unit.pages.conftest import ALL, mounted
from tests.unit.pages.recorded import campaign

Cli = Callable[..., CommandResult]


@pytest.fixture(params=["sqlite", "postgres"])
def database(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, airflow_db: object
) -> Iterator[Database]:
    url = f"sqlite:///{tmp_path}/cpaas.db"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", url)
    with open_database() as opened:
        yield opened


@pytest.fixture
def cli(database: Database, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return CommandLine(monkeypatch, capsys, "cpaas")


@pytest.fixture
def spring(database: Database) -> Database:
    """A campaign with three recipients: delivered, bounced, and without a report; then a single send."""
    start_send(database)
    token = CallbackToken("spring", "pack", 3)
    save_requests(database, SentRequest("pack", 3, "m-1"))
    save_reports(database, report(ADA, "delivered", token=token, message_id="m-1"))
    save_reports(database, report(OBI, "failed", token=token, message_id="m-1", reason=f"+{OBI} is switched off"))
    finish_send(database, expected=3)
    send = TrackedSend("single", "send_email", "other", "airflow cpaas", "now", "send-email", -1)
    database.write(lambda connection: record_send_started(connection, send))
    save_requests(database, SentRequest("single", 1, "m-2"), campaign="single", conn_id="other")
    finish_send(database, "single", expected=1)
    return database


@pytest.mark.parametrize("output", ["table", "plain", "json", "yaml"])
def test_text_of_the_service_cannot_control_the_terminal(spring: Database, cli: Cli, output: str) -> None:
    token = CallbackToken("spring", "pack", 3)
    save_reports(spring, report(UMA, "failed", token=token, message_id="m-\x1b[2J", reason="gone\x1b[2J\x9b31m\x07"))
    shown = cli("deliveries", "show", "spring", "--output", output)
    assert shown.status == 0
    assert shown.out.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    "command",
    [
        ("campaigns", "list", "--limit", "9" * 21),
        ("deliveries", "show", "--limit", "9" * 5000),
        ("suppressions", "list", "--limit", "0"),
        ("lookup", "+2348031234567", "--max-age", "99999999999"),
        ("lookup", "+2348031234567", "--max-age", "1e3"),
        ("db", "prune", "--days", "99999999999"),
        ("db", "prune", "--lookup-days", "-1"),
        ("receiver", "--port", "65536"),
        ("journal", "list", "--limit", "٣"),
    ],
)
def test_number_out_of_bounds_is_a_wrong_argument(cli: Cli, command: tuple[str, ...]) -> None:
    said = cli(*command)
    assert (said.status, "must be a whole number from 1 to " in said.err) == (2, True), said.err


def lines(said: CommandResult) -> list[dict[str, Any]]:
    assert said.status == 0, said.err
    return said.lines


class TestCampaigns:
    def test_campaign_has_its_counts(self, spring: Database, cli: Cli) -> None:
        (line,) = lines(cli("campaigns", "list", "--output", "json"))
        assert (line["reference"], line["conn_id"], line["dag_id"]) == ("spring", "shop", "dag")
        counts = [line[name] for name in ("accepted", "delivered", "undelivered", "in_flight", "unreported")]
        assert counts == [3, 1, 1, 0, 1]
        assert line["state"] == "waiting for reports"

    def test_single_messages_are_shown_on_demand_newest_first(self, spring: Database, cli: Cli) -> None:
        found = lines(cli("campaigns", "list", "--single-messages", "--output", "json"))
        assert [line["reference"] for line in found] == ["single", "spring"]
        said = cli("campaigns", "list", "--single-messages", "--limit", "1", "--output", "json")
        assert [line["reference"] for line in lines(said)] == ["single"]
        assert "Only the newest 1 are shown" in said.err

    @pytest.mark.parametrize(
        ("filters", "found"),
        [
            (("--conn-id", "other"), ["single"]),
            (("--conn-id", "Other"), ["single"]),
            (("--dag-id", "dag"), ["spring"]),
            (("--dag-id", "dag", "--run-id", "another"), []),
            (("--since", "2026-01-01"), ["single", "spring"]),
            (("--until", "2026-01-01T00:00:00+01:00"), []),
        ],
    )
    def test_campaigns_are_filtered(
        self, spring: Database, cli: Cli, filters: tuple[str, ...], found: list[str]
    ) -> None:
        shown = lines(cli("campaigns", "list", "--single-messages", "--output", "json", *filters))
        assert [line["reference"] for line in shown] == found

    def test_campaign_without_delivery_reports_has_the_figures_of_its_task(self, spring: Database, cli: Cli) -> None:
        campaign(spring, "autumn", state="running", delivery_reports=None)
        campaign(spring, "spring", dag_id="dag", minutes=1, recipients=4, sent=3, not_sent=1)
        found = {line["reference"]: line for line in lines(cli("campaigns", "list", "--output", "json"))}
        assert list(found) == ["spring", "autumn"]
        autumn = found["autumn"]
        assert (autumn["state"], autumn["accepted"], autumn["delivered"]) == ("sending", 8, None)
        assert (autumn["rejected"], autumn["charge"], autumn["balance"]) == (1, 12.5, 87.5)
        assert (found["spring"]["recipients"], found["spring"]["delivered"]) == (4, 1)
        (record,) = lines(cli("campaigns", "show", "autumn", "--output", "json"))
        assert (record["requests"], record["results_path"]) == (2, "/data/results.jsonl")

    def test_running_campaign_has_the_newest_balance(self, spring: Database, cli: Cli) -> None:
        campaign(spring, "autumn", state="running", delivery_reports=None)
        (line,) = lines(cli("balance", "--conn-id", "shop", "--output", "json"))
        assert (line["balance"], line["dag_id"]) == (87.5, "spring_dag")

    def test_invalid_time_is_an_error(self, cli: Cli) -> None:
        said = cli("campaigns", "list", "--since", "yesterday")
        assert (said.status, said.err) == (1, "--since is not a date or time in ISO 8601, such as 2026-05-01.")

    def test_empty_list_of_campaigns_is_explained(self, cli: Cli) -> None:
        assert "No campaign found." in cli("campaigns", "list").out

    @pytest.mark.parametrize("reference", ["spring", "pack"])
    def test_campaign_is_shown_by_its_reference_or_that_of_a_request(
        self, spring: Database, cli: Cli, reference: str
    ) -> None:
        (record,) = lines(cli("campaigns", "show", reference, "--output", "json"))
        assert (record["reference"], record["requests"], record["accepted"]) == ("spring", 1, 3)
        found = {one["status"]: (one["recipients"], one["reason"]) for one in record["reasons"]}
        assert found == {"delivered": (1, None), "failed": (1, "*** is switched off")}

    def test_missing_reference_is_an_error(self, spring: Database, cli: Cli) -> None:
        said = cli("campaigns", "show", "summer")
        assert (said.status, "no campaign and no request with this reference" in said.err) == (1, True)

    @pytest.mark.parametrize("output", ["table", "plain", "json", "yaml"])
    def test_output_in_each_format_has_the_counts_and_no_number(self, spring: Database, cli: Cli, output: str) -> None:
        for command in (("campaigns", "list"), ("campaigns", "show", "spring"), ("deliveries", "show", "spring")):
            said = cli(*command, "--output", output)
            assert said.status == 0, said.err
            assert not [number for number in (ADA, OBI, UMA) if number in said.out + said.err]
        assert "spring" in cli("campaigns", "list", "--output", output).out


class TestDeliveries:
    def test_recipients_are_masked_and_the_newest_is_first(self, spring: Database, cli: Cli) -> None:
        found = lines(cli("deliveries", "show", "spring", "--output", "json"))
        assert [line["recipient"] for line in found] == ["23480****002", "23480****001"]
        assert [line["outcome"] for line in found] == ["undelivered", "delivered"]
        assert found[0]["reason"] == "*** is switched off"

    @pytest.mark.parametrize("reference", ["spring", "pack", "m-1"])
    def test_reports_are_shown_by_campaign_request_or_message(self, spring: Database, cli: Cli, reference: str) -> None:
        assert len(lines(cli("deliveries", "show", reference, "--output", "json"))) == 2

    @pytest.mark.parametrize(
        ("filters", "found"),
        [
            (("--outcome", "delivered"), 1),
            (("--outcome", "bounced"), 0),
            (("--conn-id", "shop"), 2),
            (("--conn-id", "SHOP"), 2),
            (("--conn-id", "other"), 0),
            (("--dag-id", "dag"), 2),
            (("--dag-id", "another"), 0),
            (("--dag-id", ""), 0),
            (("--since", "2026-01-01"), 2),
            (("--until", "2026-01-01"), 0),
        ],
    )
    def test_reports_are_filtered_without_a_reference(
        self, spring: Database, cli: Cli, filters: tuple[str, ...], found: int
    ) -> None:
        assert len(lines(cli("deliveries", "show", "--output", "json", *filters))) == found

    def test_report_of_a_message_that_is_not_recorded_is_found_by_its_id(self, database: Database, cli: Cli) -> None:
        save_reports(database, report(ADA, "delivered", message_id="m-9"))
        (line,) = lines(cli("deliveries", "show", "m-9", "--output", "json"))
        assert (line["message_id"], line["outcome"]) == ("m-9", "delivered")

    def test_limit_is_named(self, spring: Database, cli: Cli) -> None:
        said = cli("deliveries", "show", "spring", "--limit", "1", "--output", "yaml")
        assert len(yaml.safe_load(said.out)) == 1
        assert "Only the newest 1 are shown" in said.err

    def test_empty_list_of_reports_is_explained(self, cli: Cli) -> None:
        assert "No delivery report found." in cli("deliveries", "show").out


def test_unknown_recipients_are_one_figure_in_command_json_and_page(database: Database, cli: Cli) -> None:
    campaign(database, "spring", sent=1, not_sent=0, unknown_recipients=3)
    start_send(database)
    lost = SentRequest("lost", 3, state=RequestState.UNKNOWN, unknown=3)
    save_requests(database, SentRequest("pack", 1), lost)
    finish_send(database, expected=1)
    save_reports(database, report(OBI, "delivered", token=CallbackToken("spring", "lost", 3)))
    headers = {"x-dags": ALL, "x-totals": "yes"}

    def shown() -> tuple[int, int, str]:
        with TestClient(mounted(database), base_url="http://testserver", headers=headers) as pages:
            address = "/cpaas/deliveries?campaign=spring"
            (line,) = pages.get(address, headers={"accept": "application/json"}).json()
            page = re.sub(r"\s+", " ", pages.get(address).text)
        (command,) = cli("campaigns", "list", "--output", "json").lines
        on_page = re.search(r"Unknown</dt> ?<dd[^>]*>(\d+)", page)
        assert on_page is not None
        return command["unknown"], line["unknown"], on_page[1]

    assert shown() == (2, 2, "2")
    resolved = [SentRequest("lost", 3, state=RequestState.NOT_SENT)]
    place = ("dag", "run", "send", -1)
    database.write(lambda connection: record_resolution(connection, place, ["lost"], resolved))
    assert shown() == (0, 0, "0")
