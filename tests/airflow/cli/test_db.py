"""``airflow cpaas db``, on a database of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cpaas_provider.database import REVISIONS
from cpaas_provider.database.database import open_database
from cpaas_provider.delivery.tracking.sent_requests import TrackedSend, record_send_started
from tests.airflow.harness.command_line import CommandLine, CommandResult
from tests.airflow.harness.task_runner import forget_campaign_database
from tests.unit.delivery.report_builders import ADA, counts, outcomes, report, save_reports, token_for

Call = Callable[..., CommandResult]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/kept/store.db"


@pytest.fixture
def airflow(airflow_db: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


@pytest.fixture
def store(airflow: Call, url: str) -> Call:
    """Run ``airflow cpaas db ...`` on a store of its own."""
    return lambda *arguments: airflow("cpaas", "db", *arguments, AIRFLOW__CPAAS__DATABASE=url)


def test_migrate_creates_a_missing_database(store: Call, tmp_path: Path) -> None:
    done = store("migrate")
    assert done.status == 0, done.err
    assert f"is up to date (version {REVISIONS[-1]})" in done.out
    assert (tmp_path / "kept" / "store.db").exists()


def test_unusable_database_ends_the_command_with_a_message(airflow: Call) -> None:
    done = airflow("cpaas", "db", "migrate", AIRFLOW__CPAAS__DATABASE="sqlite:///here.db")
    assert done.status == 1
    assert "absolute path" in done.err


def test_prune_removes_old_reports_and_erase_removes_recipients(store: Call, url: str) -> None:
    with open_database(url) as database:
        save_reports(database, report(ADA, "delivered", token=token_for()))
    pruned = store("prune", "--days", "1")
    assert pruned.status == 0, pruned.err
    assert "cpaas_reports: 1 row deleted." in pruned.out
    assert "cpaas_deliveries: 0 rows deleted." in pruned.out
    forgotten = store("erase", "0803 000 0001", "--region", "NG", "--yes")
    assert forgotten.status == 0, forgotten.err
    assert "Erased the recipient, read as a phone number of NG, from 1 row." in forgotten.out
    assert ADA not in forgotten.out
    with open_database(url) as database:
        assert counts(database) == (1, 0, 0)
        assert set(outcomes(database)) == {""}


def test_erase_names_the_tables_that_keep_the_recipient_in_a_run_id(store: Call, url: str) -> None:
    with open_database(url) as database:
        send = TrackedSend("spring", "send_sms", "shop", "dag", f"order-+{ADA}", "send", -1)
        database.write(lambda connection: record_send_started(connection, send))
    done = store("erase", f"+{ADA}", "--yes")
    assert done.status == 1
    assert "Not erased: cpaas_sends (1 row)." in done.out
    assert ADA not in done.out + done.err
    assert store("erase", "+2348030000009", "--yes").status == 0


def test_erasure_where_tasks_use_another_database_does_not_claim_to_be_complete(
    airflow: Call, store: Call, url: str, tmp_path: Path
) -> None:
    forget_campaign_database()
    tasks = f"sqlite:///{tmp_path}/tasks.db"
    added = airflow("cpaas", "suppressions", "add", "+2348030000009", AIRFLOW__CPAAS__DATABASE=tasks)
    assert added.status == 0, added.err
    with open_database(url) as database:
        save_reports(database, report(ADA, "delivered", token=token_for()))
    done = store("erase", f"+{ADA}", "--yes")
    assert "Erased the recipient, read as a phone number of NG, from 2 rows." in done.out
    assert (done.status, f"another database: {tasks}" in done.err) == (1, True)
    assert airflow("cpaas", "db", "erase", f"+{ADA}", "--yes", AIRFLOW__CPAAS__DATABASE=tasks).status == 0
    forget_campaign_database()


def test_prune_where_tasks_use_another_database_fails_and_names_it(airflow: Call, store: Call, tmp_path: Path) -> None:
    forget_campaign_database()
    tasks = f"sqlite:///{tmp_path}/tasks.db"
    added = airflow("cpaas", "suppressions", "add", f"+{ADA}", AIRFLOW__CPAAS__DATABASE=tasks)
    assert added.status == 0, added.err
    done = store("prune")
    assert "cpaas_reports: 0 rows deleted." in done.out
    assert (done.status, f"another database: {tasks}" in done.err) == (1, True)
    assert "That database was not pruned." in done.err
    assert airflow("cpaas", "db", "prune", AIRFLOW__CPAAS__DATABASE=tasks).status == 0
    forget_campaign_database()


def test_ambiguous_recipient_is_not_erased(store: Call) -> None:
    for given in ("somebody", "0803 000 0001"):
        done = store("erase", given, "--yes")
        assert done.status == 1
        assert "Nothing was deleted." in done.err
        assert "--region" in done.err
        assert given not in done.err


def test_recipient_is_not_erased_without_confirmation(store: Call, url: str) -> None:
    with open_database(url) as database:
        save_reports(database, report(ADA, "delivered", token=token_for()))
    done = store("erase", f"+{ADA}")
    assert (done.status, "Give --yes" in done.err) == (1, True), done.err
    with open_database(url) as database:
        assert len(outcomes(database)) == 1


@pytest.mark.parametrize("option", ["--days", "--lookup-days"])
def test_more_days_than_the_calendar_has_are_refused_in_words(store: Call, option: str) -> None:
    done = store("prune", option, "800000")
    assert done.status == 2
    assert f"argument {option}: must be a whole number from 1 to 36,500" in done.err
