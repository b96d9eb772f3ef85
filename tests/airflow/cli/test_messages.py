"""``airflow cpaas send-sms | send-email | lookup | otp | balance``, on the sandbox."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, TextIO

import pytest
from airflow.models.log import Log
from airflow.models.variable import Variable
from airflow.utils.session import create_session
from sqlalchemy import func, select

from cpaas_provider.cli.messages.tracking import DAG_ID
from cpaas_provider.database.database import open_database
from cpaas_provider.database.schema.campaigns import campaign_values
from cpaas_provider.database.schema.delivery import requests, sends
from cpaas_provider.delivery.receiver.app import create_app
from cpaas_provider.hooks._receiver import get_receiver_connection
from cpaas_provider.operators.email import SendEmailOperator
from cpaas_provider.operators.sms import SendSmsOperator, SmsCampaignOperator
from cpaas_provider.sending import send
from cpaas_provider.sending.journal.model import CAMPAIGN_DATABASE
from tests.airflow.campaigns.test_keys import copied
from tests.airflow.harness.command_line import CommandLine, CommandResult
from tests.airflow.harness.task_runner import TaskRunner, address, digits, fault, phone, setting
from tests.airflow.harness.tries import Run, new_dag
from tests.ports import listening
from tests.system.leaks import Scan, Secrets
from tests.unit.database.conftest import postgres_url as postgres_url
from tests.unit.delivery.running_receiver import running
from tests.waiting import until

Cli = Callable[..., CommandResult]
SECRETS = ("Meet at noon", "sk_test_")


@pytest.fixture
def cli(
    task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Cli:
    """Run ``airflow cpaas ...`` with a database of its own."""
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path}/cpaas.db")
    return CommandLine(monkeypatch, capsys, "cpaas")


@pytest.fixture(params=["sqlite", "postgres"])
def keyed(cli: Cli, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    """Run commands with a database of either kind."""
    if request.param == "postgres":
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", request.getfixturevalue("postgres_url"))
    return cli


def one(said: CommandResult) -> dict[str, Any]:
    """Return the one record of a command."""
    assert said.status == 0, said.err
    (record,) = said.lines
    return record


def sms(cli: Cli, *more: str, to: Sequence[str] = (phone("ada"),), text: str = "Meet at noon") -> CommandResult:
    return cli("send-sms", *to, "--content", text, "--output", "json", *more)


class TestOutput:
    """What happens to the output changes nothing of what was sent. Status 1 would have a script send again."""

    @pytest.fixture(params=["broken pipe", "full disk", "closed"])
    def output(self, request: pytest.FixtureRequest) -> Iterator[TextIO | None]:
        """Return a standard output that fails. The test sets it, because pytest sets its own after the fixtures."""
        if request.param == "closed":
            yield None
            return
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "w") as broken, Path("/dev/full").open("w", encoding="utf-8") as full:
            yield broken if request.param == "broken pipe" else full

    @pytest.mark.parametrize("form", ["json", "table"])
    def test_message_that_was_accepted_ends_with_status_0(
        self, cli: Cli, task_runner: TaskRunner, output: TextIO | None, form: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "stdout", output)
        said = cli("send-sms", phone("ada"), "--content", "Hi", "--output", form)
        assert said.status == 0, said.err
        assert task_runner.sandbox.counters()["accepted"] == {"send_sms": 1}

    def test_passcode_that_was_accepted_ends_with_status_0(
        self, cli: Cli, task_runner: TaskRunner, output: TextIO | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "stdout", output)
        assert cli("otp", "request", phone("ada"), "--output", "json").status == 0
        assert task_runner.sandbox.counters()["accepted"]["request_otp"] == 1

    def test_code_that_was_accepted_ends_with_status_0(
        self, cli: Cli, task_runner: TaskRunner, output: TextIO | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cli("otp", "request", phone("ada"))
        (sent,) = task_runner.inbox_items("otp", digits("ada"))
        monkeypatch.setattr(sys, "stdout", output)
        checked = cli("otp", "verify", sent["id"], answer=f"{sent['code']}\n")
        assert checked.status == 0, checked.err

    def test_failed_output_after_an_accepted_message_is_reported_on_standard_error(
        self, cli: Cli, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with Path("/dev/full").open("w", encoding="utf-8") as full:
            monkeypatch.setattr(sys, "stdout", full)
            said = cli("send-sms", phone("ada"), "--content", "Hi", "--output", "json")
        assert re.fullmatch(
            r"The service accepted it for 1 recipient, references: cpaas-\w+\. "
            r"The result could not be printed \(No space left on device\)\.\n",
            said.err,
        )

    @pytest.mark.parametrize("command", ["show", "resolve"])
    def test_command_on_the_journal_has_no_traceback(self, cli: Cli, command: str) -> None:
        more = ("--sent",) if command == "resolve" else ()
        said = cli("journal", command, "a", "b", "c", "--map-index", "9" * 21, *more)
        assert (said.status, "because of an unexpected error" in said.err, "Traceback" in said.err) == (1, True, False)

    @pytest.mark.parametrize("command", [("send-sms", "-", "--content", "Hi"), ("otp", "verify", "x")])
    def test_closed_standard_input_counts_as_empty(
        self, cli: Cli, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
    ) -> None:
        monkeypatch.setattr("tests.airflow.harness.command_line.io", SimpleNamespace(StringIO=lambda _: None))
        said = cli(*command)
        assert (said.status, "There is no" in said.err, "unexpected" in said.err) == (1, True, False)


class TestSendSms:
    def test_several_recipients_get_one_request(self, cli: Cli, task_runner: TaskRunner) -> None:
        said = cli("send-sms", phone("ada"), f"{phone('obi')}, {phone('ada')}", "--content", "Hi", "--output", "json")
        record = one(said)
        assert (record["recipients"], record["pages"], record["encoding"]) == (2, 1, "GSM-7")
        (message,) = task_runner.inbox_items("sms", digits("ada"))
        assert message["message_id"] == record["id"]
        assert task_runner.sandbox.counters()["accepted"] == {"send_sms": 1}
        assert record["balance"] is not None

    def test_recipients_and_text_are_read_from_files_and_standard_input(
        self, cli: Cli, task_runner: TaskRunner, tmp_path: Path
    ) -> None:
        (tmp_path / "to.txt").write_text(f"{phone('ada')}\n\n{phone('obi')},\n")
        (tmp_path / "text.txt").write_text("Zürich\n")
        more = ("--output", "json")
        assert one(cli("send-sms", "--recipients-file", f"{tmp_path}/to.txt", *more, answer="Hi\n"))["recipients"] == 2
        said = cli("send-sms", "-", "--content-file", f"{tmp_path}/text.txt", *more, answer=f"{phone('uma')}\n")
        assert one(said)["recipients"] == 1
        assert [message["text"] for message in task_runner.inbox_items("sms", digits("uma"))] == ["Zürich"]
        assert [message["text"] for message in task_runner.inbox_items("sms", digits("obi"))] == ["Hi"]

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ((), "There is no recipient."),
            (("-", "--content-file", "-"), "cannot have both"),
            (("0803",), "recipient 1 is not a phone number"),
            (("--recipients-file", "/nowhere/at/all", "--content", "x"), "cannot be read (No such file"),
            (("08031234567", "--content", " "), "The content is empty."),
            (("08031234567", "--content", "None"), "content is the word 'None'"),
            (("08031234567", "--content", "your code is {code}"), "The text has placeholders (code)"),
            (("08031234567", "--content", "x", "--idempotency-key", "null"), "--idempotency-key is the word 'null'"),
            (("08031234567", "--content", "x", "--template-id", "t"), "Give one of --content"),
            (("08031234567", "--content", "x", "--sender-id", "much too long a name"), "at most 11 characters"),
            (("08031234567", "--content", "x", "--sender-id", "Sh\u200bop"), "sender_id must not contain zero-width"),
        ],
    )
    def test_mistakes_send_nothing(
        self, cli: Cli, task_runner: TaskRunner, arguments: tuple[str, ...], words: str
    ) -> None:
        said = cli("send-sms", *arguments, answer=phone("ada"))
        assert (said.status, task_runner.sandbox.counters()["accepted"]) == (1, {})
        assert words in said.err
        assert "Nothing was sent" in said.err
        assert "Traceback" not in said.err

    def test_dry_run_counts_pages_and_masks_recipients(self, cli: Cli, task_runner: TaskRunner) -> None:
        said = cli("send-sms", phone("ada"), phone("obi"), "--content", "€" * 100, "--dry-run", "--output", "json")
        record = one(said)
        assert (record["recipients"], record["pages"], record["pages_of_all"], record["units"]) == (2, 2, 4, 200)
        assert record["to"] == [f"{digits(name)[:5]}****{digits(name)[-3:]}" for name in ("ada", "obi")]
        assert "nothing was sent" in said.err
        assert task_runner.sandbox.counters()["accepted"] == {}
        assert digits("ada") not in said.out + said.err

    def test_dry_run_has_what_the_encoding_would_save(self, cli: Cli) -> None:
        text = "It\u2019s" + "x" * 100
        said = sms(cli, "--dry-run", to=(phone("ada"), phone("obi")), text=text)
        assert (one(said)["pages_of_all"], one(said)["gsm7_saved_pages"]) == (4, 2)
        assert "encoding='gsm7' would save 2 pages." in said.err
        said = sms(cli, "--dry-run", "--encoding", "gsm7", to=(phone("ada"), phone("obi")), text=text)
        assert (one(said)["pages_of_all"], one(said)["gsm7_saved_pages"]) == (2, 2)
        assert "encoding='gsm7' saves 2 pages." in said.err
        assert "encoding='gsm7' would save 0 pages." in sms(cli, "--dry-run").err

    def test_marks_go_and_the_encoding_replaces_typography(self, cli: Cli, task_runner: TaskRunner) -> None:
        one(sms(cli, text="\ufeffHel\u200blo"))
        one(sms(cli, "--encoding", "gsm7", text="It\u2019s"))
        said = sms(cli, "--encoding", "gsm7", text="It\u2019s ọ")
        assert [message["text"] for message in task_runner.inbox_items("sms", digits("ada"))] == [
            "Hello",
            "It's",
            "It\u2019s ọ",
        ]
        assert "--encoding gsm7 leaves the text in UCS-2: 1 character of it" in said.err

    def test_encoding_of_another_channel_is_refused(self, cli: Cli, task_runner: TaskRunner) -> None:
        said = sms(cli, "--encoding", "gsm7", "--channel", "whatsapp")
        assert (said.status, task_runner.sandbox.counters()["accepted"]) == (1, {})
        assert "--encoding is for --channel sms only. Nothing was sent." in said.err

    def test_run_without_a_key_sends_again(self, cli: Cli, task_runner: TaskRunner) -> None:
        assert one(sms(cli))["references"] != one(sms(cli))["references"]
        assert len(task_runner.inbox_items("sms", digits("ada"))) == 2

    def test_recipients_not_allowed_are_left_out(self, cli: Cli, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", allowed_recipients=phone("obi"))
        record = one(cli("send-sms", phone("ada"), phone("obi"), "--content", "Hi", "--output", "json"))
        assert (record["recipients"], record["not_allowed"]) == (1, 1)
        assert "allowed_recipients" in sms(cli).err

    def test_rejection_is_one_line_without_anything_private(self, cli: Cli, task_runner: TaskRunner) -> None:
        task_runner.sandbox.control("PUT", "balance", {"balance": 0})
        said = sms(cli)
        assert said.status == 1
        assert len(said.err.strip().splitlines()) == 1
        assert not [word for word in (*SECRETS, digits("ada"), phone("ada")) if word in said.out + said.err]

    def test_lost_response_ends_with_its_own_status_and_advice(self, cli: Cli, task_runner: TaskRunner) -> None:
        task_runner.sandbox.control(*fault("send_sms", "cut_after", times=1))
        said = sms(cli)
        assert (said.status, said.out) == (3, "")
        assert "Outcome unknown: request cpaas-" in said.err
        assert "Do not simply run the command again" in said.err
        (message,) = task_runner.inbox_items("sms", digits("ada"))
        assert message["external_ref"] in said.err
        assert not [word for word in (*SECRETS, digits("ada"), phone("ada")) if word in said.err]

    def test_recipients_that_the_service_rejects_fail_it_after_the_others(
        self, cli: Cli, task_runner: TaskRunner
    ) -> None:
        task_runner.sandbox.control("POST", "seed", {"refused_recipients": [digits("bad")]})
        task_runner.sandbox.control(*setting(refused_recipients="leave_out"))
        said = sms(cli, to=(phone("ada"), phone("bad")))
        assert (said.status, said.lines[0]["recipients"], len(task_runner.inbox_items("sms", digits("ada")))) == (
            1,
            1,
            1,
        )
        assert "The service accepted 1 of 2 recipients." in said.err
        assert digits("bad") not in said.out + said.err

    def test_unexpected_error_is_one_line_too(
        self, cli: Cli, monkeypatch: pytest.MonkeyPatch, task_runner: TaskRunner
    ) -> None:
        def fails(*_: Any, **__: Any) -> Any:
            raise ZeroDivisionError(phone("ada"))

        monkeypatch.setattr("cpaas_provider.cli.messages.send.run_request", fails)
        said = sms(cli)
        assert (said.status, phone("ada") in said.err) == (1, False)
        assert "because of an unexpected error: ZeroDivisionError at fails" in said.err

    @pytest.mark.parametrize("output", ["table", "plain", "yaml", "json"])
    def test_output_in_each_format_has_the_reference_and_no_recipient(
        self, cli: Cli, task_runner: TaskRunner, output: str
    ) -> None:
        said = cli("send-sms", phone("ada"), "--content", "Meet at noon", "--output", output)
        (message,) = task_runner.inbox_items("sms", digits("ada"))
        assert message["external_ref"] in said.out
        assert not [word for word in (*SECRETS, digits("ada"), phone("ada")) if word in said.out + said.err]


class TestPrivacy:
    """A recipient is an argument of these commands, and so stands in the history of the shell, but nowhere else."""

    RECIPIENT_COMMANDS: ClassVar = {
        "send_sms": ("send-sms", phone("ada"), "--content", "Meet at noon"),
        "send_email": ("send-email", address("ada"), "--subject", "Meet at noon", "--content", "Meet at noon"),
        "lookup_phone": ("lookup", phone("ada")),
        "request_otp": ("otp", "request", phone("ada")),
    }
    OTHER_COMMANDS: ClassVar = [
        ("suppressions", "add", f"+{digits('ada')}", address("ada")),
        ("suppressions", "add", f"+{digits('ada')}", "--source", "desk", "--region", "nowhere"),
        ("suppressions", "list", "--recipient", f"+{digits('ada')}"),
        ("suppressions", "remove", f"+{digits('ada')}", address("ada")),
        ("db", "erase", f"+{digits('ada')}", "--yes"),
        ("db", "erase", address("ada"), "--yes"),
        ("db", "erase", phone("ada"), "--yes"),
    ]

    @pytest.mark.parametrize("kind", [None, "echo", "echo_rejection", "error_500"])
    @pytest.mark.parametrize("operation", RECIPIENT_COMMANDS)
    def test_command_that_makes_a_request_shows_no_recipient(
        self,
        cli: Cli,
        task_runner: TaskRunner,
        monkeypatch: pytest.MonkeyPatch,
        operation: str,
        kind: str | None,
    ) -> None:
        monkeypatch.setattr("cpaas_provider.cli.messages.otp._PROBE_SECONDS", 0)
        if kind:
            task_runner.sandbox.control(*fault(operation, kind))
        self.check_nothing_private_is_shown(cli, *self.RECIPIENT_COMMANDS[operation])
        assert task_runner.sandbox.counters()["requests"][operation] >= 1

    @pytest.mark.parametrize("arguments", OTHER_COMMANDS)
    def test_command_on_the_database_shows_no_recipient(self, cli: Cli, arguments: tuple[str, ...]) -> None:
        self.check_nothing_private_is_shown(cli, *arguments)

    def check_nothing_private_is_shown(self, cli: Cli, *arguments: str) -> None:
        """Run a command, and search its output, its log lines and all that it adds to Airflow's audit log."""
        with create_session() as session:
            newest = session.scalar(select(func.max(Log.id))) or 0
        result = cli(*arguments, "--verbose")
        assert (result.status == 2, "Traceback" in result.err) == (False, False), result.err
        with create_session() as session:
            audited = [str(row.extra) for row in session.scalars(select(Log).where(Log.id > newest))]
        scan = Scan(Secrets(numbers={digits("ada")}, addresses={address("ada")}, texts={*SECRETS}))
        assert [leak for text in (result.out, result.err, *audited) for leak in scan.text("here", text)] == []


class TestIdempotencyKey:
    def test_second_run_sends_nothing_and_shows_the_first(self, keyed: Cli, task_runner: TaskRunner) -> None:
        first, second = (one(sms(keyed, "--idempotency-key", "monday")) for _ in range(2))
        assert second["sent_by_earlier_run"]
        assert {**first, "sent_by_earlier_run": True} == second
        assert len(task_runner.inbox_items("sms", digits("ada"))) == 1
        changed = sms(keyed, "--idempotency-key", "monday", text="Meet at one")
        assert "The content was another one." in changed.err
        assert len(task_runner.inbox_items("sms", digits("ada"))) == 1
        assert one(sms(keyed, "--idempotency-key", "tuesday"))["id"] != first["id"]

    def test_recipient_added_later_gets_it_alone(self, keyed: Cli, task_runner: TaskRunner) -> None:
        sms(keyed, "--idempotency-key", "monday")
        record = one(sms(keyed, "--idempotency-key", "monday", to=(phone("obi"), phone("ada"))))
        assert record["recipients"] == 2
        assert [len(task_runner.inbox_items("sms", digits(name))) for name in ("ada", "obi")] == [1, 1]

    def test_result_is_of_the_recipients_of_this_run(self, keyed: Cli, task_runner: TaskRunner) -> None:
        key = ("--idempotency-key", "monday")
        first = one(sms(keyed, *key))
        second = one(sms(keyed, *key, to=(phone("obi"),)))
        assert (second["recipients"], second["sent_by_earlier_run"]) == (1, False)
        assert set(first["references"]).isdisjoint(second["references"])
        assert one(sms(keyed, *key)) == {**first, "sent_by_earlier_run": True}
        both = one(sms(keyed, *key, to=(phone("ada"), phone("obi"))))
        assert (both["recipients"], both["references"]) == (2, [*first["references"], *second["references"]])

    def test_other_content_of_an_earlier_run_is_named_beside_a_recipient_added_later(
        self, keyed: Cli, task_runner: TaskRunner
    ) -> None:
        sms(keyed, "--idempotency-key", "monday")
        said = sms(keyed, "--idempotency-key", "monday", to=(phone("ada"), phone("obi")), text="Meet at one")
        assert (said.status, one(said)["recipients"]) == (0, 2)
        assert "An earlier run sent other content to 1 of 2 recipients." in said.err
        texts = [task_runner.inbox_items("sms", digits(name))[0]["text"] for name in ("ada", "obi")]
        assert texts == ["Meet at noon", "Meet at one"]

    def test_suppressed_recipient_of_a_later_run_is_not_reported_as_sent_to(
        self, keyed: Cli, task_runner: TaskRunner
    ) -> None:
        sms(keyed, "--idempotency-key", "monday")
        assert keyed("suppressions", "add", phone("obi"), "--region", "NG").status == 0
        said = sms(keyed, "--idempotency-key", "monday", to=(phone("obi"),))
        assert (said.status, "on the suppression list, and no other" in said.err) == (1, True), said.out
        assert "sent it" not in said.err

    def test_rejected_recipients_are_counted_among_those_of_this_run(self, keyed: Cli, task_runner: TaskRunner) -> None:
        sms(keyed, "--idempotency-key", "monday")
        task_runner.sandbox.control("POST", "seed", {"refused_recipients": [digits("bad")]})
        task_runner.sandbox.control(*setting(refused_recipients="leave_out"))
        said = sms(keyed, "--idempotency-key", "monday", to=(phone("obi"), phone("bad")))
        assert "The service accepted 1 of 2 recipients." in said.err

    def test_unknown_outcome_is_sent_again_only_on_demand(self, keyed: Cli, task_runner: TaskRunner) -> None:
        task_runner.sandbox.control(*fault("send_sms", "cut_after", times=1))
        assert sms(keyed, "--idempotency-key", "monday").status == 3
        again = sms(keyed, "--idempotency-key", "monday")
        assert (again.status, len(task_runner.inbox_items("sms", digits("ada")))) == (3, 1)
        assert "unless you give --resend-unknown" in again.err
        changed = sms(keyed, "--idempotency-key", "monday", text="Meet at one")
        assert (changed.status, "had other content" in changed.err) == (1, True)
        assert sms(keyed, "--idempotency-key", "monday", "--resend-unknown").status == 0
        assert len(task_runner.inbox_items("sms", digits("ada"))) == 2

    def test_recipient_added_to_a_changed_message_is_reported_as_sent_to(
        self, keyed: Cli, task_runner: TaskRunner
    ) -> None:
        task_runner.sandbox.control(*fault("send_sms", "cut_after", times=1))
        assert sms(keyed, "--idempotency-key", "monday").status == 3
        both = (phone("ada"), phone("obi"))
        changed = sms(keyed, "--idempotency-key", "monday", to=both, text="Meet at one")
        assert (changed.status, "had other content" in changed.err) == (1, True)
        assert "Nothing was sent" not in changed.err
        assert "accepted this content for 1 other recipient, references: cpaas-" in changed.err
        assert [len(task_runner.inbox_items("sms", digits(name))) for name in ("ada", "obi")] == [1, 1]

    def test_outcome_that_stays_unknown_after_its_resends_has_its_status(
        self, keyed: Cli, task_runner: TaskRunner
    ) -> None:
        task_runner.sandbox.control(*fault("send_sms", "cut_after"))
        assert sms(keyed, "--idempotency-key", "monday").status == 3
        resent = sms(keyed, "--idempotency-key", "monday", "--resend-unknown")
        assert (resent.status, "retry of the task" in resent.err) == (3, False)
        assert "Do not simply run the command again" in resent.err

    def test_unknown_outcome_has_its_status_if_its_resend_is_not_sent(
        self, keyed: Cli, task_runner: TaskRunner
    ) -> None:
        task_runner.sandbox.control(*fault("send_sms", "cut_after", times=1))
        assert sms(keyed, "--idempotency-key", "monday").status == 3
        task_runner.sandbox.control(*fault("send_sms", "rate_limit", retry_after=3600))
        resent = sms(keyed, "--idempotency-key", "monday", "--resend-unknown")
        assert (resent.status, "Outcome unknown: request cpaas-" in resent.err) == (3, True)

    def test_request_that_was_not_sent_is_sent_by_the_next_run(self, keyed: Cli, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", max_retries=0, host="http://127.0.0.1:9")
        assert sms(keyed, "--idempotency-key", "monday").status == 1
        task_runner.connect("cpaas_default")
        # It leads to another service now, by its address.
        assert "another base URL" in sms(keyed, "--idempotency-key", "monday").err

    def test_another_database_than_that_of_tasks_is_refused(self, keyed: Cli, task_runner: TaskRunner) -> None:
        Variable.set(f"{CAMPAIGN_DATABASE}.another.bb", "postgresql://db/cpaas")
        said = sms(keyed, "--idempotency-key", "monday")
        assert (said.status, "in another database: postgresql://db/cpaas" in said.err) == (1, True)
        assert "--no-suppression-list sends without the suppression list" in sms(keyed).err
        assert task_runner.inbox_items("sms", digits("ada")) == []
        assert sms(keyed, "--no-suppression-list").status == 0
        assert len(task_runner.inbox_items("sms", digits("ada"))) == 1

    def test_older_copy_of_the_database_is_refused_before_a_request(self, keyed: Cli, task_runner: TaskRunner) -> None:
        with open_database() as database:
            if database.engine.dialect.name != "sqlite":
                pytest.skip("a copy of a file is restored")
            restore = copied(Path(str(database.engine.url.database)))
        assert sms(keyed, "--idempotency-key", "monday").status == 0
        restore()
        said = sms(keyed, "--idempotency-key", "monday")
        assert (said.status, "restored from an older copy" in said.err) == (1, True)
        assert "airflow variables delete cpaas_campaign_tries." in said.err
        assert len(task_runner.inbox_items("sms", digits("ada"))) == 1

    @pytest.mark.parametrize("given", [("--idempotency-key", " "), ("--resend-unknown",)])
    def test_options_that_cannot_hold_are_refused(self, cli: Cli, given: tuple[str, ...]) -> None:
        said = sms(cli, *given)
        assert (said.status, "Nothing was sent." in said.err) == (1, True)

    def test_neither_number_nor_text_is_stored(self, keyed: Cli) -> None:
        sms(keyed, "--idempotency-key", "monday")
        with open_database() as database, database.connect() as connection:
            stored = "".join(connection.execute(select(campaign_values.c.value)).scalars())
        assert stored
        assert digits("ada") not in stored
        assert "noon" not in stored


class TestSuppressionList:
    def add(self, cli: Cli, reason: str, *names: str) -> None:
        for name in names:
            said = cli("suppressions", "add", phone(name), "--reason", reason, "--region", "NG")
            assert said.status == 0, said.err

    def test_listed_recipients_are_left_out_and_counted(self, keyed: Cli, task_runner: TaskRunner) -> None:
        self.add(keyed, "opt_out", "ada")
        record = one(sms(keyed, to=(phone("ada"), phone("obi"))))
        assert (record["recipients"], record["suppressed"]) == (1, 1)
        assert [len(task_runner.inbox_items("sms", digits(name))) for name in ("ada", "obi")] == [0, 1]
        dry = one(sms(keyed, "--dry-run", to=(phone("ada"), phone("obi"))))
        assert (dry["recipients"], dry["suppressed"], len(dry["to"])) == (1, 1, 1)

    def test_message_is_sent_to_listed_recipients_only_without_the_list(
        self, cli: Cli, task_runner: TaskRunner
    ) -> None:
        self.add(cli, "opt_out", "ada")
        for more in ((), ("--dry-run",)):
            said = sms(cli, *more)
            assert (said.status, "on the suppression list, and no other" in said.err) == (1, True)
        assert one(sms(cli, "--no-suppression-list"))["suppressed"] == 0
        assert len(task_runner.inbox_items("sms", digits("ada"))) == 1

    def test_unusable_database_sends_nothing(
        self, cli: Cli, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", "postgresql://shop:hunter2222@127.0.0.1:9/cpaas")
        said = sms(cli)
        assert (said.status, "Nothing was sent." in said.err, "hunter2222" in said.err) == (1, True, False)
        # Without the list, the database may still say that the connection is stopped.
        said = sms(cli, "--no-suppression-list")
        assert (said.status, "stops cannot be read" in said.err) == (1, True)

    def test_passcode_is_refused_for_an_invalid_number_only(self, cli: Cli) -> None:
        self.add(cli, "opt_out", "ada")
        self.add(cli, "invalid_number", "obi")
        assert cli("otp", "request", phone("ada")).status == 0
        assert cli("otp", "request", phone("obi")).status == 1
        assert cli("otp", "request", phone("obi"), "--no-suppression-list").status == 0


class TestDeliveryReports:
    def test_send_is_recorded_for_its_reports(self, cli: Cli, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", callback_url="http://127.0.0.1:9")
        record = one(said := sms(cli))
        assert record["delivery_reports"] == "callback"
        assert "did not respond" in said.err
        assert said.err.count("Connection 'cpaas_default': callback_secret is not set") == 1
        with open_database() as database, database.connect() as connection:
            (send,) = connection.execute(select(sends)).all()
        assert [send.campaign] == record["references"]
        assert (send.dag_id, send.task_id, send.expected) == (DAG_ID, "send-sms", 1)
        (message,) = task_runner.inbox_items("sms", digits("ada"))
        assert message["callback"].startswith("http://127.0.0.1:9/callback/cpaas_default/")

    def test_reports_reach_the_receiver_and_are_shown(self, keyed: Cli, task_runner: TaskRunner) -> None:
        task_runner.sandbox.control("POST", "seed", {"outcomes": {"sms": {digits("obi"): "undelivered"}}})
        app = create_app(get_receiver_connection, guard=None, emit_metric=None)
        with listening() as (listener, url), running(app, listener):
            task_runner.connect("cpaas_default", callback_url=url, callback_secret="secret-of-callbacks")
            said = sms(keyed, to=(phone("ada"), phone("obi")))
            (reference,) = one(said)["references"]
            assert said.err == ""
            show = ("deliveries", "show", reference, "--output", "json")
            until(lambda: len(keyed(*show).lines) == 2)
        found = {line["recipient"]: line["outcome"] for line in keyed(*show).lines}
        assert found == {
            f"{digits(name)[:5]}****{digits(name)[-3:]}": outcome
            for name, outcome in (("ada", "delivered"), ("obi", "undelivered"))
        }
        record = one(keyed("campaigns", "show", reference, "--output", "json"))
        assert (record["state"], record["delivered"], record["undelivered"]) == ("all reported", 1, 1)
        assert one(keyed("campaigns", "list", "--dag-id", DAG_ID, "--single-messages", "--output", "json"))

    @pytest.mark.parametrize("conn_id", ["cpaas_default", "Cpaas_Default"])
    def test_send_is_recorded_under_the_one_id_of_the_receiver_in_whatever_case_it_is_written(
        self, cli: Cli, task_runner: TaskRunner, conn_id: str
    ) -> None:
        task_runner.connect("cpaas_default", webhook_secret="secret-of-webhooks", signature_header="X-Signature")
        record = one(sms(cli, "--conn-id", conn_id))
        assert record["delivery_reports"] == "webhook"
        with open_database() as database, database.connect() as connection:
            (send,) = connection.execute(select(sends)).all()
            (request,) = connection.execute(select(requests)).all()
        assert (send.conn_id, request.conn_id) == ("cpaas_default", "cpaas_default")

    def test_unusable_receiver_sends_nothing(self, cli: Cli, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", callback_url=task_runner.sandbox.url)
        said = sms(cli)
        assert (said.status, task_runner.sandbox.counters()["accepted"]) == (1, {})
        assert "Nothing was sent. --no-callback sends" in said.err
        assert one(sms(cli, "--no-callback"))["delivery_reports"] is None


class TestSendEmail:
    def test_subject_and_names_arrive(self, cli: Cli, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", email_sender_id="shop@example.com")
        more = ("--subject", "News", "--from-name", "Shop", "--reply-to", "help@example.com", "--output", "json")
        assert one(cli("send-email", address("ada"), *more, answer="Dear Ada,\n\nhello\n"))["recipients"] == 1
        (message,) = task_runner.inbox_items("email", address("ada"))
        assert (message["subject"], message["from_name"]) == ("News", "Shop")
        assert message["text"] == "Dear Ada,\n\nhello"

    @pytest.mark.parametrize("option", ["subject", "from-name"])
    @pytest.mark.parametrize("mark", ["\n", "\x0b", "\x85", "\u2028"])
    def test_line_break_in_a_header_sends_nothing(
        self, cli: Cli, task_runner: TaskRunner, option: str, mark: str
    ) -> None:
        said = cli("send-email", address("ada"), "--content", "x", f"--{option}", f"Hi{mark}Bcc: x@example.com")
        assert (said.status, task_runner.sandbox.counters()["accepted"]) == (1, {})
        assert f"{option.replace('-', '_')} must not contain line breaks or other control characters" in said.err

    def test_recipients_not_allowed_are_left_out(self, cli: Cli, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", allowed_recipients=address("obi"), email_sender_id="shop@example.com")
        to = address("ada"), address("obi")
        record = one(cli("send-email", *to, "--subject", "News", "--content", "x", "--output", "json"))
        assert (record["recipients"], record["not_allowed"]) == (1, 1)
        assert task_runner.inbox_items("email", address("ada")) == []

    def test_invalid_address_is_named_by_its_place(self, cli: Cli) -> None:
        said = cli("send-email", address("ada"), "nobody at home", "--content", "x", "--sender-id", "a@example.com")
        assert (said.status, "recipient 2 is not an email address" in said.err) == (1, True)
        assert "nobody" not in said.err


class TestLookup:
    def look_up(self, cli: Cli, *more: str, answer: str = "") -> CommandResult:
        return cli("lookup", *more, "--output", "json", answer=answer)

    def asked(self, task_runner: TaskRunner) -> int:
        return int(task_runner.sandbox.counters()["accepted"].get("lookup_phone", 0))

    def test_number_is_charged_once_and_masked(self, cli: Cli, task_runner: TaskRunner) -> None:
        first = one(self.look_up(cli, phone("ada"), phone("ada")))
        assert (first["source"], first["dnd"], first["country"], self.asked(task_runner)) == ("service", False, "NG", 1)
        second = one(said := self.look_up(cli, "-", answer=phone("ada")))
        assert (second, self.asked(task_runner)) == ({**first, "source": "cache"}, 1)
        assert "--no-cache" not in said.err
        assert one(self.look_up(cli, phone("ada"), "--no-cache"))["source"] == "service"
        assert self.asked(task_runner) == 2
        assert digits("ada") not in said.out + said.err

    def test_cache_is_that_of_campaigns(self, cli: Cli, task_runner: TaskRunner) -> None:
        self.look_up(cli, phone("ada"))
        with new_dag() as dag:
            SmsCampaignOperator(task_id="send", source=[{"phone": phone("ada")}], content="Hi", skip_dnd=True)
        assert Run(task_runner, dag).run_try("send").state == "success"
        assert self.asked(task_runner) == 1

    def test_lookup_of_a_campaign_stores_the_dnd_flag_only(self, cli: Cli, task_runner: TaskRunner) -> None:
        with new_dag() as dag:
            SmsCampaignOperator(task_id="send", source=[{"phone": phone("ada")}], content="Hi", skip_dnd=True)
        assert Run(task_runner, dag).run_try("send").state == "success"
        found = one(said := self.look_up(cli, phone("ada")))
        assert (found["source"], found["dnd"], found["operator"], self.asked(task_runner)) == ("cache", False, None, 1)
        assert "flag only of 1 number. --no-cache asks the service" in said.err

    def test_new_secret_of_the_connection_keeps_the_cache(self, cli: Cli, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", callback_secret="old")
        self.look_up(cli, phone("ada"))
        task_runner.connect("cpaas_default", callback_secret="new,old")
        assert one(self.look_up(cli, phone("ada")))["source"] == "cache"
        assert self.asked(task_runner) == 1

    def test_cache_is_that_of_bulk_lookups(self, cli: Cli, task_runner: TaskRunner, tmp_path: Path) -> None:
        from cpaas_provider.operators.lookup import BulkPhoneLookupOperator

        with new_dag() as dag:
            results = str(tmp_path / "found.jsonl")
            BulkPhoneLookupOperator(task_id="look_up", source=[{"phone": phone("ada")}], results_path=results)
        assert Run(task_runner, dag).run_try("look_up").state == "success"
        found = one(self.look_up(cli, phone("ada")))
        assert (found["source"], found["country"], self.asked(task_runner)) == ("cache", "NG", 1)

    def test_failed_lookup_fails_the_command_and_others_are_shown(self, cli: Cli, task_runner: TaskRunner) -> None:
        task_runner.sandbox.control(*fault("lookup_phone", "reject", times=1, message="Unknown number"))
        said = self.look_up(cli, phone("ada"), phone("obi"))
        assert said.status == 1
        assert [line["error"] is None for line in said.lines] == [False, True]
        assert "1 lookup failed." in said.err

    def test_wrong_key_ends_it(self, cli: Cli, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", password="sk_test_wrong")
        said = self.look_up(cli, phone("ada"), phone("obi"))
        assert (said.status, len(said.lines)) == (1, 1)
        assert "1 number of 2 were not looked up." in said.err


class TestOtp:
    def request(self, cli: Cli, *more: str) -> CommandResult:
        return cli("otp", "request", phone("ada"), "--output", "json", *more)

    def code(self, task_runner: TaskRunner) -> str:
        (record, *_) = task_runner.sandbox.inbox("otp", recipient=digits("ada"))["items"]
        return str(record["code"])

    def test_code_is_requested_and_verified(self, cli: Cli, task_runner: TaskRunner) -> None:
        record = one(self.request(cli, "--length", "6", "--expires-in", "5"))
        assert record["recipient"] == f"{digits('ada')[:5]}****{digits('ada')[-3:]}"
        code = self.code(task_runner)
        assert len(code) == 6
        wrong = cli("otp", "verify", record["id"], "--output", "json", answer="000000\n")
        assert (wrong.status, wrong.lines[0]["verified"]) == (1, False)
        right = cli("otp", "verify", record["id"], "--output", "json", answer=f"{code}\n")
        assert one(right)["verified"]
        assert code not in right.out + right.err

    def test_recipient_not_allowed_gets_no_code(self, cli: Cli, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", allowed_recipients=phone("obi"))
        said = self.request(cli)
        assert (said.status, task_runner.sandbox.counters()["requests"]) == (1, {})
        assert "not on allowed_recipients of the connection. Nothing was sent." in said.err

    def test_missing_code_uses_no_attempt(self, cli: Cli, task_runner: TaskRunner) -> None:
        record = one(self.request(cli))
        said = cli("otp", "verify", record["id"], answer="\n")
        assert (said.status, "no attempt was used" in said.err) == (1, True)

    def test_code_is_no_argument(self, cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli("otp", "verify", "otp_1", "1234").status == 2

    @pytest.mark.parametrize("kind", ["cut_before", "cut_after"])
    def test_check_of_unknown_outcome_is_made_once_and_has_its_status(
        self, cli: Cli, task_runner: TaskRunner, kind: str
    ) -> None:
        record = one(self.request(cli))
        task_runner.sandbox.control(*fault("verify_otp", kind, times=1))
        result = cli("otp", "verify", record["id"], answer=self.code(task_runner))
        assert (result.status, "an attempt may be used" in result.err) == (3, True)
        assert task_runner.sandbox.counters()["requests"]["verify_otp"] == 1

    def test_lost_response_is_resolved_by_the_new_record(self, cli: Cli, task_runner: TaskRunner) -> None:
        task_runner.sandbox.control(*fault("request_otp", "cut_after", times=1))
        assert one(self.request(cli))["status_desc"] == "SENT"

    def test_outcome_that_stays_unknown_has_its_status(
        self, cli: Cli, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from cpaas_provider.cli.messages import otp

        monkeypatch.setattr(otp, "_PROBE_SECONDS", 0)
        task_runner.sandbox.control(*fault("request_otp", "cut_before", times=1))
        said = self.request(cli)
        assert (said.status, "get a second passcode" in said.err) == (3, True)

    def test_outcome_is_unknown_if_the_records_cannot_be_read_either(self, cli: Cli, task_runner: TaskRunner) -> None:
        task_runner.sandbox.control(*fault("request_otp", "cut_after", times=1))
        task_runner.sandbox.control(*fault("find_otps", "rate_limit", after=1, retry_after=3600))
        said = self.request(cli)
        assert (said.status, "get a second passcode" in said.err) == (3, True)


class TestBalance:
    @pytest.fixture(autouse=True)
    def nothing_before(self, airflow_db: object) -> None:
        from airflow.models import xcom
        from sqlalchemy import delete

        with create_session() as session:
            # What Airflow 3.4 calls XComModel can only be read.
            session.execute(delete(getattr(xcom, "XComModelV2", xcom.XComModel)))

    def test_balance_is_unknown_before_a_send(self, cli: Cli) -> None:
        said = cli("balance", "--conn-id", "cpaas_default", "--output", "json")
        assert (said.status, said.lines) == (1, [])
        assert "has no operation that returns a balance" in said.err

    def test_balance_is_that_of_the_newest_task_result(self, cli: Cli, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_other", email_sender_id="shop@example.com")
        with new_dag() as dag:
            SendSmsOperator(task_id="first", recipients=phone("ada"), content="Hi")
            SendEmailOperator(
                task_id="mail", recipients=address("ada"), content="Hi", subject="Hi", cpaas_conn_id="cpaas_other"
            )
            SendSmsOperator(task_id="last", recipients=phone("obi"), content="Hi")
        run = Run(task_runner, dag)
        results = {name: run.run_try(name).result for name in ("first", "mail", "last")}
        found = {line["conn_id"]: line for line in cli("balance", "--output", "json").lines}
        assert found["cpaas_default"]["balance"] == results["last"]["balance"]
        assert found["cpaas_default"]["task_id"] == "last"
        assert found["cpaas_other"]["balance"] == results["mail"]["balance"]
        age = datetime.now(UTC) - datetime.fromisoformat(found["cpaas_default"]["reported_at"])
        assert age.total_seconds() < 60
        assert one(cli("balance", "--conn-id", "cpaas_other", "--output", "json"))["task_id"] == "mail"

    def test_balance_of_one_connection_is_found_in_whatever_case_its_id_is_written(
        self, cli: Cli, task_runner: TaskRunner
    ) -> None:
        with new_dag() as dag:
            SendSmsOperator(task_id="first", recipients=phone("ada"), content="Hi")
            SmsCampaignOperator(task_id="last", source=[phone("obi")], content="Hi", cpaas_conn_id="CPaaS_Default")
        run = Run(task_runner, dag)
        for name in ("first", "last"):
            run.run_try(name)
        for which in ([], ["--conn-id", "cpaas_DEFAULT"]):
            assert one(cli("balance", *which, "--output", "json"))["task_id"] == "last"


def test_ctrl_c_while_the_service_asks_to_wait_sends_nothing_and_the_key_can_be_used_again(
    cli: Cli, task_runner: TaskRunner
) -> None:
    task_runner.sandbox.control(*fault("send_sms", "rate_limit", retry_after=30))
    handler = signal.getsignal(signal.SIGINT)

    def press_ctrl_c() -> None:
        until(lambda: task_runner.sandbox.counters()["requests"].get("send_sms"))
        # Otherwise the signal would end the tests.
        assert signal.getsignal(signal.SIGINT) is not handler
        os.kill(os.getpid(), signal.SIGINT)

    with ThreadPoolExecutor(1) as beside:
        pressed = beside.submit(press_ctrl_c)
        stopped = sms(cli, "--idempotency-key", "monday")
        pressed.result()
    assert (stopped.status, stopped.out) == (130, "")
    assert "Nothing was sent: the command was stopped by Ctrl-C." in stopped.err
    task_runner.sandbox.control("DELETE", "faults")
    record = one(sms(cli, "--idempotency-key", "monday"))
    assert (record["sent_by_earlier_run"], len(task_runner.inbox_items("sms", digits("ada")))) == (False, 1)


def test_key_is_leased_while_a_run_sends(
    cli: Cli, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two runs with one key at a time: the second is refused, and nothing is sent twice."""
    refused: list[str] = []
    engine = send.SendEngine

    class Meanwhile(engine):  # type: ignore[misc, valid-type]
        async def run(self, *, resolve: bool = True) -> None:
            from cpaas_provider.database.errors import CampaignLockedError
            from cpaas_provider.database.registry import CampaignKey, open_campaign

            key = CampaignKey("cpaas_default", "sms", "airflow cpaas send_sms monday", task_runner.sandbox.url)
            with open_database() as database, pytest.raises(CampaignLockedError) as error:
                open_campaign(database, key, (0, 1), "another run")
            refused.append(str(error.value))
            await super().run(resolve=resolve)

    monkeypatch.setattr(send, "SendEngine", Meanwhile)
    assert sms(cli, "--idempotency-key", "monday").status == 0
    (words,) = refused
    assert "airflow cpaas on " in words


def test_run_that_is_stopped_before_it_sends_to_a_recipient_added_later_is_no_success(
    cli: Cli, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sms(cli, "--idempotency-key", "monday").status == 0
    engine = send.SendEngine

    class Stopped(engine):  # type: ignore[misc, valid-type]
        async def run(self, *, resolve: bool = True) -> None:
            self.ports.stop.request()
            await super().run(resolve=resolve)

    with monkeypatch.context() as patch:
        patch.setattr(send, "SendEngine", Stopped)
        both = (phone("ada"), phone("obi"))
        stopped = sms(cli, "--idempotency-key", "monday", to=both)
        assert (stopped.status, "stopped by Ctrl-C" in stopped.err) == (130, True)
        # No recipient remained, so it is a success.
        assert one(sms(cli, "--idempotency-key", "monday"))["recipients"] == 1
    assert one(sms(cli, "--idempotency-key", "monday", to=both))["recipients"] == 2
    assert [len(task_runner.inbox_items("sms", digits(name))) for name in ("ada", "obi")] == [1, 1]
