"""``airflow cpaas doctor``: its findings and its advice."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.jobs.job import Job
from airflow.models.variable import Variable
from airflow.utils.session import create_session
from sqlalchemy import delete, insert, update

from cpaas_provider.cli.doctor import database as command_database
from cpaas_provider.cli.doctor import installation
from cpaas_provider.cli.doctor.report import Status, clock
from cpaas_provider.cli.doctor.service import _service_clock
from cpaas_provider.database import REVISIONS
from cpaas_provider.database.database import open_database
from cpaas_provider.database.recipients.hash_keys import writing_hasher
from cpaas_provider.database.schema.base import alembic_version
from cpaas_provider.delivery.receiver.app import create_app
from cpaas_provider.hooks._receiver import get_receiver_connection
from cpaas_provider.sending.journal.model import CAMPAIGN_DATABASE
from tests.airflow.harness.command_line import CommandLine, CommandResult
from tests.airflow.harness.task_runner import TaskRunner
from tests.certificates import Authority
from tests.ports import listening
from tests.tls_server import TlsServer, relay_to
from tests.unit.database.conftest import postgres_url as postgres_url
from tests.unit.database.table_versions import NEXT, NextVersion
from tests.unit.delivery.running_receiver import running

Doctor = Callable[..., CommandResult]


@pytest.fixture
def doctor(
    task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Iterator[Doctor]:
    """Run ``airflow cpaas doctor`` with an empty place for the database, and no triggerer."""
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path}/cpaas.db")
    with create_session() as session:
        session.execute(delete(Job))
    command = CommandLine(monkeypatch, capsys, "cpaas", "doctor", "--output", "json")
    yield command
    with create_session() as session:
        session.execute(delete(Job))


def findings_of(said: CommandResult, check: str) -> list[tuple[str, str, str | None]]:
    """Return what was found by a check: status, words, and advice."""
    return [(one["status"], one["found"], one["what_to_do"]) for one in said.lines if one["check"] == check]


def status(said: CommandResult, check: str) -> str:
    (found,) = findings_of(said, check)
    return found[0]


class TestConnection:
    def test_valid_connection_passes_without_a_charge(self, doctor: Doctor, task_runner: TaskRunner) -> None:
        said = doctor()
        assert said.status == 0, said.out
        assert [status(said, check) for check in ("connection", "API key", "clock of the service")] == ["ok"] * 3
        assert task_runner.sandbox.counters()["accepted"] == {"get_contact_table": 1}
        assert task_runner.sandbox.counters()["charged"] == 0

    def test_missing_connection_fails_and_other_checks_run(self, doctor: Doctor) -> None:
        said = doctor("--conn-id", "cpaas_nowhere")
        assert said.status == 1
        ((_, found, advice),) = findings_of(said, "connection")
        assert "'cpaas_nowhere' cannot be read" in found
        assert "airflow connections add" in str(advice)
        assert status(said, "API key") == "skipped"
        assert status(said, "versions") == "ok"

    def test_wrong_key_is_failed_and_not_shown(self, doctor: Doctor) -> None:
        said = doctor("--conn-id", "cpaas_wrong_key")
        ((found, words, _),) = findings_of(said, "API key")
        assert (said.status, found) == (1, "failed")
        assert "Wrong API key" in words
        assert "sk_test" not in said.out + said.err
        # The service's time comes with a rejection, too.
        assert status(said, "clock of the service") == "ok"

    def test_unreachable_host_fails_and_the_clock_check_is_skipped(self, doctor: Doctor) -> None:
        said = doctor("--conn-id", "cpaas_refused")
        assert (said.status, status(said, "API key")) == (1, "failed")
        assert status(said, "clock of the service") == "skipped"

    def test_missing_or_unusable_client_certificate_is_named(
        self, doctor: Doctor, task_runner: TaskRunner, tmp_path: Path
    ) -> None:
        authority = Authority(tmp_path, "service")
        cert, key = authority.issue("client")
        context = authority.server_context(clients=authority.path)
        with TlsServer(context, tmp_path, relay_to(task_runner.sandbox.url)) as front:
            for client, found, words in (
                ({}, "failed", "alert certificate_required"),
                ({"client_cert": str(cert)}, "failed", "file in client_cert must hold the private key"),
                ({"client_cert": str(cert), "client_key": str(key)}, "ok", "accepted"),
            ):
                task_runner.connect("cpaas_default", host=front.url, verify=str(authority.path), **client)
                ((status_of_key, message, _),) = findings_of(doctor(), "API key")
                assert (status_of_key, words in message) == (found, True), message

    def test_extra_that_cannot_be_used(self, doctor: Doctor, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", requests_per_second="many")
        ((found, words, _),) = findings_of(doctor(), "connection")
        assert (found, "requests_per_second" in words) == ("failed", True)

    def test_extra_that_is_unknown_and_half_a_webhook(self, doctor: Doctor, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", sender="Shop", webhook_secret="of-webhooks")
        said = doctor()
        warnings = [words for found, words, _ in findings_of(said, "connection") if found == "warning"]
        assert "Unknown extras are ignored: sender." in warnings
        assert any("the webhook endpoint is closed" in words for words in warnings)
        assert (said.status, "of-webhooks" in said.out) == (0, False)

    @pytest.mark.parametrize(
        ("secrets", "expected"),
        [
            ({}, ["callback_secret is not set, so the API key signs callback URLs."]),
            (
                {"callback_secret": "a long enough secret,hunter22", "webhook_secret": "hunter22"},
                ["callback_secret has a secret that is shorter than 16", "webhook_secret is shorter than 16"],
            ),
        ],
    )
    def test_weak_secrets_are_warned_of_and_not_shown(
        self, doctor: Doctor, task_runner: TaskRunner, secrets: dict[str, str], expected: list[str]
    ) -> None:
        task_runner.connect(
            "cpaas_default", callback_url="http://127.0.0.1:9", signature_header="X-Signature", **secrets
        )
        said = doctor()
        warnings = [words for found, words, _ in findings_of(said, "connection") if found == "warning"]
        if "webhook_secret" not in secrets:
            warnings = [words for words in warnings if "the webhook endpoint is closed" not in words]
        assert len(warnings) == len(expected)
        assert all(map(str.startswith, warnings, expected))
        assert "hunter22" not in said.out + said.err

    def test_proxy_with_its_password_in_the_url(self, doctor: Doctor, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", proxy="http://ada:hunter22@127.0.0.1:9")
        said = doctor()
        ((found, words, _),) = findings_of(said, "connection")
        assert (said.status, found, "set proxy_password" in words) == (1, "failed", True)
        assert "hunter22" not in said.out + said.err

    def test_another_type_of_connection(
        self, doctor: Doctor, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        connection = {**task_runner.sandbox.connection, "conn_type": "http"}
        monkeypatch.setenv("AIRFLOW_CONN_CPAAS_HTTP", json.dumps(connection))
        found = findings_of(doctor("--conn-id", "cpaas_http"), "connection")
        assert found[0][:2] == ("failed", "Connection 'cpaas_http' is of type 'http'.")


class TestRateLimit:
    def test_rate_limit_per_task_is_named(self, doctor: Doctor, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", requests_per_second=7)
        assert findings_of(doctor(), "rate limit") == [
            ("ok", "7 requests a second for each task. share_rate_limit is off", None)
        ]

    def test_shared_rate_limit_is_named(self, doctor: Doctor, task_runner: TaskRunner, tmp_path: Path) -> None:
        task_runner.connect("cpaas_default", requests_per_second=2.5, share_rate_limit=True)
        ((status_before, words, _),) = findings_of(doctor(), "rate limit")
        assert (status_before, "no usable database yet" in words) == ("skipped", True)
        open_database(f"sqlite:///{tmp_path}/cpaas.db").close()
        found = findings_of(doctor(), "rate limit")
        assert found == [("ok", "2.5 requests a second for all tasks together (share_rate_limit)", None)]

    def test_rate_limit_is_skipped_without_a_connection(self, doctor: Doctor) -> None:
        assert status(doctor("--conn-id", "cpaas_nowhere"), "rate limit") == "skipped"


class TestDatabase:
    def test_missing_file_is_not_created(self, doctor: Doctor, tmp_path: Path) -> None:
        said = doctor()
        ((found, _, advice),) = findings_of(said, "database")
        assert (found, "airflow cpaas db migrate" in str(advice)) == ("warning", True)
        assert not (tmp_path / "cpaas.db").exists()

    @pytest.mark.parametrize("place", ["/dev/null/cpaas.db", "/dev/null/deeper/cpaas.db"])
    def test_file_that_cannot_be_created(self, doctor: Doctor, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{place}")
        said = doctor()
        ((found, words, _),) = findings_of(said, "database")
        assert (said.status, found, "/dev/null is no folder" in words) == (1, "failed", True)

    @pytest.mark.parametrize("kind", ["sqlite", "postgres"])
    def test_database_with_tables_passes(
        self, doctor: Doctor, kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if kind == "postgres":
            monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", request.getfixturevalue("postgres_url"))
            assert status(doctor(), "database") == "warning"
        open_database().close()
        said = doctor()
        ((found, words, _),) = findings_of(said, "database")
        assert (found, f"table version {REVISIONS[-1]}" in words) == ("ok", True)
        assert status(said, "clock of the database") == ("skipped" if kind == "sqlite" else "ok")

    def test_older_tables_are_not_migrated(
        self, doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        open_database().close()
        older = REVISIONS[-1]
        NextVersion(monkeypatch, tmp_path / "scripts")
        monkeypatch.setattr(command_database, "REVISIONS", (older, NEXT))
        said = doctor()
        assert (said.status, status(said, "database")) == (1, "failed")
        assert f"have version {older}" in findings_of(said, "database")[0][1]
        with closing(sqlite3.connect(tmp_path / "cpaas.db")) as reading:
            assert reading.execute("SELECT version_num FROM cpaas_alembic_version").fetchall() == [(older,)]

    def test_newer_tables_and_a_database_that_cannot_be_reached(
        self, doctor: Doctor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with open_database() as database:
            database.write(lambda connection: connection.execute(update(alembic_version).values(version_num="9999")))
        assert "newer version" in findings_of(doctor(), "database")[0][1]
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", "postgresql://shop:hunter2222@127.0.0.1:9/cpaas")
        said = doctor()
        assert status(said, "database") == "failed"
        assert "hunter2222" not in said.out + said.err

    def test_another_database_that_tasks_used(self, doctor: Doctor) -> None:
        with open_database() as database:
            Variable.set(f"{CAMPAIGN_DATABASE}.{database.database_id}.aa", database.redacted_url)
            assert status(doctor(), "database of campaigns") == "ok"
            Variable.set(f"{CAMPAIGN_DATABASE}.another.bb", "sqlite:////elsewhere.db")
            ((found, words, _),) = findings_of(doctor(), "database of campaigns")
        assert (found, "sqlite:////elsewhere.db" in words) == ("failed", True)


class TestRecipientSecret:
    CHECK = "recipient secret"
    VARIABLE = "AIRFLOW__CPAAS__RECIPIENT_SECRET"
    OLD, NEW = "an old and long secret", "a new and long secret"

    @pytest.fixture
    def hashed(self, doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
        """Make a key of a secret in the database."""

        def make_key(secret: str) -> None:
            monkeypatch.setenv(self.VARIABLE, secret)
            with open_database() as database:
                database.write(writing_hasher)

        return make_key

    def test_missing_secret_is_warned_of(self, doctor: Doctor) -> None:
        ((found, words, _),) = findings_of(doctor(), self.CHECK)
        assert (found, "recipient_secret is not set" in words) == ("warning", True)

    def test_secret_of_the_database_is_ok(self, doctor: Doctor, hashed: Callable[[str], None]) -> None:
        hashed(self.OLD)
        assert status(doctor(), self.CHECK) == "ok"

    def test_new_secret_in_front_of_the_old_one_is_ok(
        self, doctor: Doctor, hashed: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hashed(self.OLD)
        monkeypatch.setenv(self.VARIABLE, f"{self.NEW},{self.OLD}")
        assert status(doctor(), self.CHECK) == "ok"

    @pytest.mark.parametrize("configured", ["", "a new and long secret"])
    def test_secret_that_differs_from_that_of_the_database_is_failed_and_not_shown(
        self, doctor: Doctor, hashed: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, configured: str
    ) -> None:
        hashed(self.OLD)
        monkeypatch.setenv(self.VARIABLE, configured)
        said = doctor()
        assert status(said, self.CHECK) == "failed"
        assert not any(secret in json.dumps(said.lines) for secret in (self.OLD, self.NEW))

    def test_short_secret_is_warned_of_and_not_shown(self, doctor: Doctor, hashed: Callable[[str], None]) -> None:
        hashed("hunter2")
        said = doctor()
        assert status(said, self.CHECK) == "warning"
        assert "hunter2" not in json.dumps(said.lines)

    def test_hashes_of_the_time_before_it_was_set_are_warned_of(
        self, doctor: Doctor, hashed: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hashed("")
        monkeypatch.setenv(self.VARIABLE, self.NEW)
        ((found, words, _),) = findings_of(doctor(), self.CHECK)
        assert (found, "before [cpaas] recipient_secret was set" in words) == ("warning", True)


class TestReceiver:
    @pytest.fixture
    def receiver(self, task_runner: TaskRunner, doctor: Doctor) -> Iterator[str]:
        """A receiver with the same database."""
        app = create_app(get_receiver_connection, guard=None, emit_metric=None)
        with open_database(), listening() as (listener, url), running(app, listener):
            task_runner.connect("cpaas_default", callback_url=url, callback_secret="of-callbacks")
            yield url

    def test_receiver_on_the_same_database_passes(self, doctor: Doctor, receiver: str) -> None:
        said = doctor()
        assert (said.status, status(said, "receiver"), status(said, "callback URL")) == (0, "ok", "ok")

    def test_receiver_on_another_database_fails(
        self, doctor: Doctor, receiver: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        assert doctor().status == 0
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path}/another.db")
        open_database().close()
        ((found, words, _),) = findings_of(doctor(), "receiver")
        assert (found, "in another database" in words) == ("failed", True)

    def test_missing_receiver_fails(self, doctor: Doctor, task_runner: TaskRunner) -> None:
        open_database().close()
        task_runner.connect("cpaas_default", callback_url="http://127.0.0.1:9", callback_secret="of-callbacks")
        ((found, words, advice),) = findings_of(doctor(), "receiver")
        assert (found, "did not respond" in words) == ("failed", True)
        assert "airflow cpaas receiver" in str(advice)

    def test_loopback_url_for_a_service_elsewhere(self, doctor: Doctor, task_runner: TaskRunner) -> None:
        task_runner.connect(
            "cpaas_default", callback_url="http://127.0.0.1:9", host="https://192.0.2.1/v1", timeout=0.2
        )
        ((found, words, _),) = findings_of(doctor(), "callback URL")
        assert (found, "leads to this machine itself" in words) == ("failed", True)

    def test_private_address_is_warned_of_and_an_unresolvable_host_fails(
        self, doctor: Doctor, task_runner: TaskRunner
    ) -> None:
        task_runner.connect("cpaas_default", callback_url="http://10.1.2.3/cpaas", callback_secret="of-callbacks")
        assert [found for found, _, _ in findings_of(doctor(), "callback URL")] == ["warning", "warning"]
        task_runner.connect("cpaas_default", callback_url="https://nowhere.invalid/cpaas")
        assert status(doctor(), "callback URL") == "failed"


class TestAirflow:
    def record_heartbeat(self, ago: timedelta, state: str = "running") -> None:
        moment = datetime.now(UTC) - ago
        with create_session() as session:
            session.execute(
                insert(Job).values(job_type="TriggererJob", state=state, start_date=moment, latest_heartbeat=moment)
            )

    def test_triggerer_that_never_ran(self, doctor: Doctor) -> None:
        assert status(doctor(), "triggerer") == "warning"

    def test_running_triggerer_passes(self, doctor: Doctor) -> None:
        self.record_heartbeat(timedelta(seconds=1))
        assert status(doctor(), "triggerer") == "ok"

    def test_ended_triggerer_fails(self, doctor: Doctor) -> None:
        self.record_heartbeat(timedelta(hours=1))
        said = doctor()
        assert (said.status, status(said, "triggerer")) == (1, "failed")
        assert "airflow triggerer" in str(findings_of(said, "triggerer")[0][2])

    def test_misspelt_option(self, doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABSE", "postgresql://x:hunter2222@db/cpaas")
        said = doctor()
        assert findings_of(said, "configuration")[0][:2] == ("warning", "Unknown options in [cpaas]: databse.")
        assert "hunter2222" not in said.out

    def test_value_that_cannot_be_used(self, doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AIRFLOW__CPAAS__CALLBACK_DAYS", "ninety")
        assert status(doctor(), "configuration") == "failed"

    def test_mode_of_results_files_that_cannot_be_used(self, doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AIRFLOW__CPAAS__RESULTS_FILE_MODE", "777")
        ((_, words, _),) = [said for said in findings_of(doctor(), "configuration") if said[0] == "failed"]
        assert words.startswith("[cpaas] results_file_mode is '777'. It must be three octal digits")

    def test_several_machines_without_a_shared_database(self, doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "CeleryExecutor")
        monkeypatch.delenv("AIRFLOW__CPAAS__DATABASE")
        assert any("a SQLite file of its own" in words for _, words, _ in findings_of(doctor(), "configuration"))


@pytest.mark.parametrize(
    ("requirement", "found"),
    [
        ("pydantic>=2", None),
        ("pydantic>=99", "pydantic>=99"),
        ("no-such-package-at-all>=1", "no-such-package-at-all>=1 (not installed)"),
        ('pyarrow>=99; extra == "parquet"', None),
        ('pydantic>=99; python_version < "3"', None),
    ],
)
def test_version_below_the_floor_is_named(requirement: str, found: str | None) -> None:
    words = installation._too_low(requirement)
    assert words == found or str(words).startswith(f"{found} (")


@pytest.mark.parametrize(
    ("ahead", "expected"),
    [
        (timedelta(seconds=1), Status.OK),
        (timedelta(seconds=-31), Status.WARNING),
        (timedelta(minutes=3), Status.FAILED),
        (timedelta(hours=-1), Status.FAILED),
    ],
)
def test_clock_may_differ_a_little(ahead: timedelta, expected: Status) -> None:
    now = datetime(2026, 5, 1, 12, tzinfo=UTC)
    assert clock("clock", now + ahead, now, "Set it.").status is expected


@pytest.mark.parametrize(
    ("date", "expected"),
    [
        ("Fri, 01 May 2026 12:00:00 GMT", Status.OK),
        ("Fri, 01 May 2026 12:01:00 GMT", Status.WARNING),
        ("Fri, 01 May 2026 14:00:00 GMT", Status.FAILED),
        ("soon", Status.SKIPPED),
        (None, Status.SKIPPED),
    ],
)
def test_clock_of_the_service_is_read_from_its_date(date: Any, expected: Status) -> None:
    assert _service_clock("clock", date, datetime(2026, 5, 1, 12, tzinfo=UTC)).status is expected
