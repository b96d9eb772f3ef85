"""``airflow cpaas journal`` on the journals of real task instances."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import airflow.state
import msgspec.structs
import pytest
import yaml
from airflow.models.log import Log
from airflow.models.task_state_store import TaskStateStoreModel
from airflow.models.taskinstance import TaskInstance
from airflow.sdk import task, timezone
from airflow.state.metastore import MetastoreBackend
from airflow.utils.session import create_session
from sqlalchemy import delete, select, update

from cpaas_provider.hooks.cpaas import CpaasHook
from cpaas_provider.operators.airtime import BuyAirtimeOperator
from cpaas_provider.operators.contacts import CreateContactRowOperator
from cpaas_provider.operators.otp import RequestOtpOperator
from cpaas_provider.operators.sms import SendSmsOperator
from cpaas_provider.sending.journal.model import JOURNAL_KEY, LogEntry, Result, State
from cpaas_provider.sending.requests.probes import OtpRecordProbe
from tests import journals
from tests.airflow.harness.command_line import CommandLine, CommandResult
from tests.airflow.harness.running import copy_row
from tests.airflow.harness.task_runner import RETRIES, TaskRunner, digits, fault, open_task_runner, phone
from tests.airflow.harness.tries import Run, new_dag
from tests.sandbox import Sandbox

Journal = Callable[..., CommandResult]


@pytest.fixture
def task_runner(airflow_db: object, sandbox_process: Sandbox) -> Iterator[TaskRunner]:
    with create_session() as session:
        session.execute(delete(TaskStateStoreModel))
    with open_task_runner(sandbox_process) as ready:
        yield ready


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Journal:
    """Run ``airflow cpaas journal ...``, with a person to respond where ``answer`` is given."""
    return CommandLine(monkeypatch, capsys, "cpaas", "journal")


class Send:
    """A task whose every request is carried out, and whose answer is cut off where that is asked for."""

    def __init__(self, task_runner: TaskRunner, *recipients: str, **options: Any) -> None:
        self.task_runner = task_runner
        with new_dag() as dag:
            self.task = SendSmsOperator(task_id="send", recipients=list(recipients), content="Hello", **options)
        self.run = Run(task_runner, dag)
        self.ids = [dag.dag_id, self.run.run_id, "send"]

    def fail_unknown(self) -> Send:
        """Have the next answer cut off, and run the try that ends by it."""
        self.task_runner.sandbox.control(*fault("send_sms", "cut_after", times=1))
        assert self.run.run_try("send").state == "failed"
        return self

    @property
    def requests(self) -> dict[str, Any]:
        return self.run.journal("send")

    @property
    def reference(self) -> str:
        (reference,) = self.requests
        return str(reference)

    def message_count(self, case: str) -> int:
        return len(self.task_runner.inbox_items("sms", digits(case)))

    def leave_pending(self, *, seconds_ago: float) -> Send:
        """Have the journal as a try leaves it that was killed while its requests were under way."""
        self.run.leave_in_flight(timezone.utcnow() - timedelta(seconds=seconds_ago), "send")
        return self

    def set_state(self, state: str | None) -> None:
        with create_session() as session:
            session.execute(update(TaskInstance).where(TaskInstance.run_id == self.run.run_id).values(state=state))


@pytest.fixture
def send(task_runner: TaskRunner) -> Send:
    """A failed task with one unknown request to two recipients."""
    return Send(task_runner, phone("ada"), phone("obi")).fail_unknown()


class TestResolveSent:
    def test_task_cleared_after_resolve_sent_succeeds_and_sends_nothing(self, send: Send, journal: Journal) -> None:
        said = journal("resolve", "--sent", *send.ids, "--yes")
        assert said.status == 0, said.err
        assert "Resolved as sent: 1 request to 2 recipients" in said.out
        assert f"  {send.reference}\n" in said.out
        assert "Next: clear the task. It then sends only to other recipients" in said.out
        assert "Airflow 3.4" in said.out
        ended = send.run.clear().run_try()
        assert (ended.state, ended.result["recipients"], ended.result["unknown_recipients"]) == ("success", 2, 0)
        assert ended.result["id"] is None
        assert (send.message_count("ada"), send.message_count("obi")) == (1, 1)

    def test_given_id_is_in_the_result(self, send: Send, journal: Journal) -> None:
        assert journal("resolve", "--sent", *send.ids, "--id", "msg_9", "--yes").status == 0
        assert send.run.clear().run_try().result["id"] == "msg_9"

    def test_journal_records_a_manual_resolution(self, send: Send, journal: Journal) -> None:
        journal("resolve", "--sent", *send.ids, "--yes")
        kept = send.requests[send.reference]
        assert (kept["state"], kept["resolution"], "result" in kept) == ("accepted", "sent", False)
        assert kept["reason"].startswith("manually resolved as sent (before: ")

    def test_resolved_journal_never_expires(self, send: Send, journal: Journal) -> None:
        journal("resolve", "--sent", *send.ids, "--yes")
        assert [row.expires_at for row in send.run.state_rows()] == [None] * 3

    def test_other_recipients_are_still_sent_to(self, send: Send, journal: Journal) -> None:
        journal("resolve", "--sent", *send.ids, "--yes")
        send.task.recipients = [phone("ada"), phone("obi"), phone("ngozi")]
        assert send.run.clear().run_try().state == "success"
        assert [send.message_count(one) for one in ("ada", "obi", "ngozi")] == [1, 1, 1]

    def test_resolve_of_a_successful_task_says_nothing_is_left_to_do(
        self, task_runner: TaskRunner, journal: Journal
    ) -> None:
        send = Send(task_runner, phone("ada"), on_unknown="skip")
        task_runner.sandbox.control(*fault("send_sms", "cut_after", times=1))
        assert send.run.run_try().state == "success"
        assert "Nothing is left to do" in journal("resolve", "--sent", *send.ids, "--yes").out


class TestResolveNotSent:
    def test_task_cleared_after_resolve_not_sent_sends_once_more(self, send: Send, journal: Journal) -> None:
        said = journal("resolve", "--not-sent", *send.ids, "--yes")
        assert said.status == 0, said.err
        assert "Next: clear the task. It then sends only to these 2 recipients" in said.out
        kept = send.requests[send.reference]
        assert (kept["state"], kept["resolution"], "previous_unknown" in kept) == ("not_sent", "not_sent", False)
        ended = send.run.clear().run_try()
        assert (ended.state, ended.result["recipients"]) == ("success", 2)
        assert (send.message_count("ada"), send.message_count("obi")) == (2, 2)
        assert send.run.clear().run_try().state == "success"
        assert (send.message_count("ada"), send.message_count("obi")) == (2, 2)

    @pytest.mark.parametrize("state", ["up_for_retry", None])
    def test_next_try_sends_without_a_clear(self, send: Send, journal: Journal, state: str | None) -> None:
        send.set_state(state)
        said = journal("resolve", "--not-sent", *send.ids, "--yes")
        assert "Next: nothing to do. The task's next try sends only to these 2 recipients" in said.out
        assert send.run.run_try().state == "success"
        assert send.message_count("ada") == 2

    def test_pending_request_of_a_killed_try_can_be_resolved(self, task_runner: TaskRunner, journal: Journal) -> None:
        send = Send(task_runner, phone("ada")).fail_unknown().leave_pending(seconds_ago=61)
        assert journal("resolve", "--not-sent", *send.ids, "--yes").status == 0
        assert send.requests[send.reference]["state"] == "not_sent"

    def test_mapped_instance_is_named_by_its_index(self, task_runner: TaskRunner, journal: Journal) -> None:
        with new_dag() as dag:
            SendSmsOperator.partial(task_id="send", content="Hello").expand(recipients=[[phone("m0")], [phone("m1")]])
        run = Run(task_runner, dag)
        task_runner.sandbox.control(*fault("send_sms", "cut_after", times=1))
        assert [run.run_try("send", index).state for index in (0, 1)] == ["failed", "success"]
        ids = [dag.dag_id, run.run_id, "send"]
        said = journal("resolve", "--not-sent", *ids, "--yes")
        assert (said.status, "--map-index (0 to 1)" in said.err) == (1, True)
        said = journal("resolve", "--not-sent", *ids, "--map-index", "0", "--yes")
        assert "1 request to 1 recipient of send[0] in run" in said.out
        assert run.clear("send", 0).run_try("send", 0).state == "success"


class TestSeveralRequests:
    @pytest.fixture
    def two(self, send: Send) -> Send:
        """Two unknown requests: a recipient was added between two tries."""
        send.task.recipients = [phone("ada"), phone("obi"), phone("ngozi")]
        send.run.clear()
        return send.fail_unknown()

    def test_only_the_named_request_is_resolved(self, two: Send, journal: Journal) -> None:
        first, second = two.requests
        said = journal("resolve", "--not-sent", *two.ids, "--reference", first, "--yes")
        assert f"Still unresolved: 1 request to 1 recipient ({second})" in said.out
        assert [one["state"] for one in two.requests.values()] == ["not_sent", "unknown"]

    def test_references_may_be_given_in_either_way(self, two: Send, journal: Journal) -> None:
        first, second = two.requests
        assert journal("resolve", "--sent", *two.ids, "--reference", first, "--reference", second, "--yes").status == 0
        assert [one["state"] for one in two.requests.values()] == ["accepted", "accepted"]

    def test_requests_are_resolved_one_by_one(self, two: Send, journal: Journal) -> None:
        first, second = two.requests
        journal("resolve", "--sent", *two.ids, "--reference", first, "--yes")
        journal("resolve", "--not-sent", *two.ids, "--reference", second, "--yes")
        assert two.run.clear().run_try().state == "success"
        assert [two.message_count(one) for one in ("ada", "obi", "ngozi")] == [1, 1, 2]

    def test_one_id_for_two_requests_is_refused(self, two: Send, journal: Journal) -> None:
        said = journal("resolve", "--sent", *two.ids, "--id", "msg_9", "--yes")
        assert (said.status, "An id belongs to one request" in said.err) == (1, True)


class TestConfirmation:
    def test_answer_of_yes_resolves(self, send: Send, journal: Journal) -> None:
        said = journal("resolve", "--not-sent", *send.ids, answer="y\n")
        assert said.status == 0
        assert f"  {send.reference}  send_sms, 2 recipients, started " in said.out
        assert "Resolve as not sent? The task's next try sends them. This cannot be undone. [y/N]" in said.out

    @pytest.mark.parametrize("answer", ["n\n", "\n"])
    def test_answer_of_no_changes_nothing(self, send: Send, journal: Journal, answer: str) -> None:
        said = journal("resolve", "--not-sent", *send.ids, answer=answer)
        assert (said.status, said.err) == (1, "Nothing was changed.")
        assert send.requests[send.reference]["state"] == "unknown"

    def test_missing_answer_changes_nothing_and_names_the_option(self, send: Send, journal: Journal) -> None:
        said = journal("resolve", "--not-sent", *send.ids)
        assert (said.status, "Give --yes to skip the question" in said.err) == (1, True)
        assert send.requests[send.reference]["state"] == "unknown"


ON_ITS_WAY = ["running", "queued", "scheduled", "deferred", "restarting", "up_for_reschedule", "awaiting_input"]


class TestRefused:
    @pytest.mark.parametrize("state", ON_ITS_WAY)
    def test_running_task_instance_is_refused(self, send: Send, journal: Journal, state: str) -> None:
        send.set_state(state)
        said = journal("resolve", "--not-sent", *send.ids, "--yes")
        assert (said.status, f"is {state}, so its try may still write" in said.err) == (1, True)
        assert "Wait until it has ended" in said.err
        assert send.requests[send.reference]["state"] == "unknown"

    @pytest.mark.parametrize(
        ("given", "said_of_it"),
        [
            ((), "Give either --sent or --not-sent"),
            (("--sent", "--not-sent"), "Give either --sent or --not-sent"),
            (("--not-sent", "--id", "msg_9"), "--id is the id of what was sent"),
        ],
    )
    def test_ambiguous_resolution_changes_nothing(
        self, send: Send, journal: Journal, given: tuple[str, ...], said_of_it: str
    ) -> None:
        said = journal("resolve", *given, *send.ids, "--yes")
        assert (said.status, said_of_it in said.err, "Nothing was changed." in said.err) == (1, True, True)
        assert send.requests[send.reference]["state"] == "unknown"

    @pytest.mark.parametrize("command", ["resolve --sent", "resolve --not-sent"])
    def test_request_that_may_be_in_flight_is_refused(self, send: Send, journal: Journal, command: str) -> None:
        said = journal(*command.split(), *send.leave_pending(seconds_ago=20).ids, "--yes")
        assert (said.status, f"Started less than 60 seconds ago: {send.reference}." in said.err) == (1, True)
        assert re.search(r"Nothing was changed\. Try again in [34]\d s\.$", said.err)
        assert send.requests[send.reference]["state"] == "pending"

    def test_task_that_began_during_the_confirmation_is_refused(
        self, send: Send, journal: Journal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def think(*_: object, **__: object) -> bool:
            send.set_state("queued")
            return True

        monkeypatch.setattr("cpaas_provider.cli.terminal.ask_yesno", think)
        said = journal("resolve", "--not-sent", *send.ids)
        assert (said.status, "is queued" in said.err) == (1, True)
        assert send.requests[send.reference]["state"] == "unknown"

    def test_journal_that_changed_during_the_confirmation_is_refused(
        self, send: Send, journal: Journal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def think(*_: object, **__: object) -> bool:
            add(send, Result(0, State.ACCEPTED))
            return True

        monkeypatch.setattr("cpaas_provider.cli.terminal.ask_yesno", think)
        said = journal("resolve", "--not-sent", *send.ids)
        assert (said.status, "is no longer as it was read" in said.err) == (1, True)
        assert send.requests[send.reference]["state"] == "accepted"

    @pytest.mark.parametrize("command", ["show", "resolve --sent", "resolve --not-sent"])
    def test_missing_task_instance_is_named(self, send: Send, journal: Journal, command: str) -> None:
        said = journal(*command.split(), *send.ids[:2], "other")
        assert (said.status, "Task instance other in run" in said.err) == (1, True)

    def test_map_index_of_an_unmapped_task_is_refused(self, send: Send, journal: Journal) -> None:
        said = journal("resolve", "--sent", *send.ids, "--map-index", "3", "--yes")
        assert (said.status, "omit --map-index" in said.err) == (1, True)

    @pytest.mark.parametrize("command", ["show", "resolve --sent", "resolve --not-sent"])
    def test_missing_journal_is_named(self, task_runner: TaskRunner, journal: Journal, command: str) -> None:
        said = journal(*command.split(), *Send(task_runner, phone("ada")).ids)
        assert (said.status, "has no journal" in said.err) == (1, True)

    def test_missing_reference_is_named(self, send: Send, journal: Journal) -> None:
        said = journal("resolve", "--sent", *send.ids, "--reference", "cpaas-other", "--yes")
        assert (said.status, "no request cpaas-other" in said.err) == (1, True)
        assert f"Its requests: {send.reference}" in said.err

    def test_accepted_request_is_not_resolved_as_not_sent(self, task_runner: TaskRunner, journal: Journal) -> None:
        send = Send(task_runner, phone("ada"))
        assert send.run.run_try().state == "success"
        said = journal("resolve", "--not-sent", *send.ids, "--reference", send.reference, "--yes")
        assert (said.status, "accepted by the service" in said.err) == (1, True)
        said = journal("resolve", "--not-sent", *send.ids, "--yes")
        assert (said.status, "This journal has no unresolved request" in said.err) == (1, True)
        assert send.requests[send.reference]["state"] == "accepted"

    def test_journal_of_another_version_is_refused(self, send: Send, journal: Journal) -> None:
        rewrite(send, lambda kept: kept.update(version=99))
        said = journal("resolve", "--not-sent", *send.ids, "--yes")
        assert (said.status, "cannot read the journal of task instance " in said.err) == (1, True)
        assert ": its version is 99. Nothing was changed." in said.err
        said = journal("list", "--output", "json")
        assert (said.status, said.lines) == (1, [])
        assert "could not be read" in said.err
        assert "No unresolved requests" not in said.err

    @pytest.mark.parametrize("stored", [{"__airflow_state_ref__": "file:///gone"}, ["unknown"], None, 7])
    def test_invalid_journal_is_refused(self, send: Send, journal: Journal, stored: Any) -> None:
        rewrite(send, lambda _: None, instead=json.dumps(stored))
        for command in (("show", *send.ids), ("resolve", "--not-sent", *send.ids, "--yes"), ("list",)):
            said = journal(*command)
            assert (said.status, "This version of the provider cannot read the" in said.err) == (1, True)
        assert [row.value for row in send.run.state_rows()] == [json.dumps(stored)]

    def test_failing_database_reports_that_the_resolution_may_not_be_stored(
        self, send: Send, journal: Journal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object, **__: object) -> None:
            raise OSError("disk full")

        monkeypatch.setattr(airflow.state.get_state_backend(), "set", fail)
        said = journal("resolve", "--not-sent", *send.ids, "--yes")
        assert (said.status, "may not have been stored (OSError: disk full)" in said.err) == (1, True)
        assert send.requests[send.reference]["state"] == "unknown"


class TestList:
    def test_list_without_unresolved_requests_is_empty(self, task_runner: TaskRunner, journal: Journal) -> None:
        send = Send(task_runner, phone("ada"))
        assert send.run.run_try().state == "success"
        assert journal("list").out == "No unresolved requests.\n"
        said = journal("list", "--output", "json")
        assert (said.lines, said.err) == ([], "No unresolved requests.\n")
        assert "No such request." in journal("list", "--state", "rejected").out

    def test_list_has_unresolved_requests_and_the_remedy(self, send: Send, journal: Journal) -> None:
        said = journal("list", "--output", "json")
        (line,) = said.lines
        assert line == {
            "dag_id": send.ids[0],
            "run_id": send.ids[1],
            "task_id": "send",
            "map_index": -1,
            "task_state": "failed",
            "reference": send.reference,
            "operation": "send_sms",
            "state": "unknown",
            "recipients": 2,
            "try": 1,
            "started_at": line["started_at"],
            "next_probe": None,
            "reason": line["reason"],
        }
        assert line["started_at"].endswith("+00:00")
        assert "Unresolved: 1 request to 2 recipients" in said.err
        assert f"airflow cpaas journal resolve --sent {' '.join(send.ids)}\n" in said.err

    @pytest.mark.parametrize("output", ["table", "plain", "yaml", "json"])
    def test_list_in_each_format_holds_no_number(self, send: Send, journal: Journal, output: str) -> None:
        said = journal("list", "--output", output)
        assert said.status == 0
        assert "send_sms" in said.out
        assert "2348" not in said.out

    def test_list_filters_by_state_and_ids(self, send: Send, journal: Journal) -> None:
        other = Send(send.task_runner, phone("ngozi"))
        other.run.run_try()

        def found(*filters: str) -> list[str]:
            return [line["reference"] for line in journal("list", *filters, "--output", "json").lines]

        assert found("--state", "all") == [other.reference, send.reference]
        assert found("--state", "accepted") == [other.reference]
        assert found("--state", "unknown") == [send.reference]
        assert found("--state", "not_sent") == []
        assert found("--state", "all", "--dag-id", send.ids[0]) == [send.reference]
        assert found("--state", "all", "--run-id", other.ids[1]) == [other.reference]
        assert found("--state", "all", "--task-id", "nothing") == []

    def test_pending_request_of_a_running_try_is_in_flight_and_not_unresolved(
        self, send: Send, journal: Journal
    ) -> None:
        send.leave_pending(seconds_ago=1)
        (line,) = journal("list", "--output", "json").lines
        assert line["reference"] == send.reference
        send.set_state("running")
        said = journal("list", "--output", "json")
        (line,) = said.lines
        assert [line[name] for name in ("task_state", "state", "recipients", "reference", "reason")] == [
            *("running", "pending", 2, None, "1 request together"),
        ]
        for shown in (said, journal("list", "--state", "pending"), journal("show", *send.ids)):
            text = shown.out + shown.err
            assert shown.status == 0
            assert "In flight: 1 request to 2 recipients, in tasks that Airflow shows as running. If such a" in text
            assert not re.search("Unresolved:|No unresolved", text)
        assert len(journal("list", "--state", "pending", "--output", "json").lines) == 1

    def test_list_of_another_state_does_not_deny_unresolved_requests(self, send: Send, journal: Journal) -> None:
        Send(send.task_runner, phone("ngozi")).run.run_try()
        for filters in (("--state", "accepted"), ("--state", "all", "--limit", "1")):
            said = journal("list", *filters)
            assert "send_sms" in said.out
            assert "No unresolved requests" not in said.out

    def test_list_pages_up_to_a_limit(
        self, task_runner: TaskRunner, journal: Journal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("cpaas_provider.cli.journal.repository._PAGE", 2)
        sends = [Send(task_runner, phone(f"paged_{number}")).fail_unknown() for number in range(5)]
        newest_first = [one.reference for one in reversed(sends)]
        said = journal("list", "--output", "json")
        assert [line["reference"] for line in said.lines] == newest_first
        said = journal("list", "--limit", "3", "--output", "json")
        assert [line["reference"] for line in said.lines] == newest_first[:3]
        assert "Only the newest 3 are shown" in said.err


class TestShow:
    def test_show_has_the_whole_journal(self, send: Send, journal: Journal) -> None:
        journal("resolve", "--sent", *send.ids, "--id", "msg_9", "--yes")
        (line,) = journal("show", *send.ids, "--output", "json").lines
        assert (line["state"], line["resolution"], line["result_id"]) == ("accepted", "sent", "msg_9")
        assert line["recipients"] == 2
        assert (line["personal"], line["previous_unknown"]) == (False, False)

    def test_numbers_and_switches_are_json_in_lists_too_and_in_yaml(self, send: Send, journal: Journal) -> None:
        (line,) = journal("list", "--output", "json").lines
        assert (line["recipients"], line["try"], line["map_index"]) == (2, 1, -1)
        (same,) = yaml.safe_load(journal("list", "--output", "yaml").out)
        assert same == line

    @pytest.mark.parametrize("width", [40, 80, 120])
    def test_reference_in_a_table_is_never_broken(
        self, send: Send, journal: Journal, monkeypatch: pytest.MonkeyPatch, width: int
    ) -> None:
        monkeypatch.setattr("airflow.cli.simple_table.is_tty", lambda: True)
        monkeypatch.setenv("COLUMNS", str(width))
        assert send.reference in journal("list", "--output", "table").out.split()
        assert send.reference in journal("show", *send.ids, "--output", "table").out.split()

    @pytest.mark.parametrize("output", ["table", "plain", "yaml", "json"])
    def test_show_holds_no_recipient_hash_in_any_format(self, send: Send, journal: Journal, output: str) -> None:
        said = journal("show", *send.ids, "--output", output)
        assert send.reference in said.out
        for member in send.requests[send.reference]["recipient_hashes"]:
            assert member not in said.out
        assert send.requests[send.reference]["body"] not in said.out

    def test_brackets_in_a_reason_are_shown(self, send: Send, journal: Journal) -> None:
        add(send, Result(0, State.UNKNOWN, reason="no [bold]luck[/bold] :smile:"))
        assert "no [bold]luck[/bold] :smile:" in journal("show", *send.ids).out

    def test_journal_without_a_request_is_shown(self, send: Send, journal: Journal) -> None:
        send.run.rewrite_requests(lambda entry: msgspec.structs.replace(entry, intents=[], results=[]))
        assert "has no request" in journal("show", *send.ids).out

    def test_show_warns_of_requests_lost_with_the_state(self, send: Send, journal: Journal) -> None:
        send.run.clear(drop_state=True)
        assert send.run.run_try().state == "failed"
        said = journal("show", *send.ids)
        assert "The journal does not show whether recipients without a request here were sent to: " in said.out
        assert "dropped the task state" in said.out
        said = journal("resolve", "--not-sent", *send.ids, "--yes")
        assert "The outcome for other recipients is unknown (" in said.out
        assert send.run.clear().run_try().state == "success"
        assert send.message_count("ada") == 2

    def test_other_operations_have_journals_too(self, task_runner: TaskRunner, journal: Journal) -> None:
        with new_dag() as dag:
            BuyAirtimeOperator(task_id="buy", network="MTN", amount=100, recipient=phone("airtime"))
        run = Run(task_runner, dag)
        assert run.run_try().state == "success"
        (line,) = journal("show", dag.dag_id, run.run_id, "buy", "--output", "json").lines
        assert (line["operation"], line["result_id"]) == ("buy_airtime", line["result"]["id"])


@pytest.mark.parametrize(("amount", "named"), [(100, 100), (200, None)], ids=["same-amount", "changed-amount"])
def test_purchase_resolved_as_sent_names_no_amount_that_was_not_bought(
    task_runner: TaskRunner, journal: Journal, amount: int, named: int | None
) -> None:
    single = Single(task_runner, "buy_airtime")
    assert journal("resolve", "--sent", *single.ids, "--id", "buy-1", "--yes").status == 0
    done = single.run.change(amount=amount).clear().run_try()
    assert (done.state, done.result["id"], done.result["amount"]) == ("success", "buy-1", named)


class Single:
    """A task that makes one request, whose answer is cut off."""

    def __init__(self, task_runner: TaskRunner, kind: str) -> None:
        with new_dag() as dag:
            if kind == "create_contact_row":
                CreateContactRowOperator(task_id="do", columns={"Name": "Ada"})
            elif kind == "request_otp":
                RequestOtpOperator(task_id="do", recipient=phone("single"), channel="sms")
            else:
                BuyAirtimeOperator(task_id="do", network="MTN", amount=100, recipient=phone("single"))
        self.run = Run(task_runner, dag)
        self.ids = [dag.dag_id, self.run.run_id, "do"]
        task_runner.sandbox.control(*fault(kind, "cut_before", times=1))
        ended = self.run.run_to_end()[-1]
        assert ended.state == "failed", ended


BY_REFERENCE = "by reference (the service's external_ref, unless the task sets its own)"
WORDED = {
    "create_contact_row": (
        "1 request for 1 row",
        "create_contact_row by cells and start time",
        "create_contact_row, 1 row, started",
        "It then adds the row. From",
        "It then succeeds without a request. From",
    ),
    "request_otp": (
        "1 request to 1 recipient",
        "request_otp by recipient and start time",
        "request_otp, 1 recipient, started",
        "It then requests the passcode for the recipient in its arguments. From",
        "It then succeeds without a request, unless its recipient has changed. From",
    ),
    "buy_airtime": (
        "1 request to 1 recipient",
        f"buy_airtime {BY_REFERENCE}",
        "buy_airtime, 1 recipient, started",
        "It then buys the airtime for the recipient in its arguments. From",
        "It then succeeds without a request, unless its recipient has changed. From",
    ),
}


@pytest.fixture
def no_probe_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """What no record shows at once is unknown at once."""
    monkeypatch.setattr(OtpRecordProbe, "max_wait", timedelta())


@pytest.mark.usefixtures("no_probe_wait")
@pytest.mark.parametrize("kind", WORDED)
def test_texts_are_those_of_the_operation(task_runner: TaskRunner, journal: Journal, kind: str) -> None:
    counts, found, story, made, not_made = WORDED[kind]
    single = Single(task_runner, kind)
    assert f"Unresolved: {counts}. Look for them in the service's own records: {found}. Then" in journal("list").out
    assert f"  {story} " in journal("resolve", "--sent", *single.ids).out.replace(next(iter(single.run.journal())), "")
    said = journal("resolve", "--not-sent", *single.ids, "--yes").out
    assert f"Resolved as not sent: {counts} of do in run" in said
    assert f"Next: clear the task. {made}" in said
    single.run.rewrite_requests(
        lambda entry: msgspec.structs.replace(entry, results=[one for one in entry.results if one.resolution is None])
    )
    marked = journal("resolve", "--sent", *single.ids, "--yes").out
    assert f"Next: clear the task. {not_made}" in marked
    assert ("Without --id the task's result has no id" in marked) == (kind != "buy_airtime")
    assert single.run.clear().run_try().state == "success"


@pytest.mark.usefixtures("no_probe_wait")
def test_list_of_several_operations_says_where_to_look_for_each(task_runner: TaskRunner, journal: Journal) -> None:
    for kind in WORDED:
        Single(task_runner, kind)
    Send(task_runner, phone("ada"), phone("obi")).fail_unknown()
    said = journal("list").out
    assert "Unresolved: 4 requests to 4 recipients and for 1 row." in said
    ways = f"send_sms and buy_airtime {BY_REFERENCE}, {WORDED['request_otp'][1]}, {WORDED['create_contact_row'][1]}. Th"
    assert f"Look for them in the service's own records: {ways}" in said


@pytest.mark.usefixtures("no_probe_wait")
def test_list_says_how_to_find_passcodes_of_the_idempotent_client(task_runner: TaskRunner, journal: Journal) -> None:
    @task(task_id="do")
    def request() -> None:
        with CpaasHook().get_idempotent_client() as client:
            client.request_otp(phone("single"))

    with new_dag() as dag:
        request()
    task_runner.sandbox.control(*fault("request_otp", "cut_before", times=1))
    run = Run(task_runner, dag)
    assert run.run_try().state == "failed"
    ways = f"requests by recipient and start time, messages and purchases also {BY_REFERENCE}"
    assert f"Look for them in the service's own records: {ways}. Then" in journal("list").out
    resolved = journal("resolve", "--sent", dag.dag_id, run.run_id, "do", "--yes")
    assert "Without --id the task's result has no id" in resolved.out


def in_flight(task_runner: TaskRunner) -> tuple[Run, list[str]]:
    """Return a task whose passcode request will be cut off, and which looks for its record again."""
    with new_dag() as dag:
        RequestOtpOperator(task_id="do", recipient=phone("probed"), channel="sms")
    run = Run(task_runner, dag)
    task_runner.sandbox.control(*fault("request_otp", "cut_before", times=1))
    return run, [dag.dag_id, run.run_id, "do"]


def test_list_and_show_name_the_next_probe_of_a_deferred_task(
    task_runner: TaskRunner, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OtpRecordProbe, "max_wait", timedelta(seconds=30))
    run, ids = in_flight(task_runner)
    deferred = run.run_try()
    assert deferred.trigger is not None
    until = datetime.fromisoformat(deferred.trigger[1]["until"]).isoformat(timespec="seconds")
    for said in (journal("list", "--output", "json"), journal("show", *ids, "--output", "json")):
        assert [line["next_probe"] for line in said.lines] == [until]
    hint = journal("list").out
    assert f"At {until} a task continues, and looks for proof by itself (next_probe)" in hint
    assert "A campaign first sends to the remaining recipients." in hint
    monkeypatch.setattr(OtpRecordProbe, "max_wait", timedelta())
    assert run.run_to_end()[-1].state == "failed"
    # No try follows by itself, so no probe does.
    said = journal("list", "--output", "json")
    assert [line["next_probe"] for line in said.lines] == [None]
    assert "looks for proof by itself" not in said.err


def test_list_names_the_next_probe_of_a_task_that_is_up_for_retry(task_runner: TaskRunner, journal: Journal) -> None:
    run, _ = in_flight(task_runner)
    task_runner.sandbox.control(*fault("find_otps", "error_500", after=1))
    assert run.run_try().state == "up_for_retry"
    with create_session() as session:
        ended_at = session.scalars(select(TaskInstance.end_date).where(TaskInstance.run_id == run.run_id)).one()
    (line,) = journal("list", "--output", "json").lines
    assert datetime.fromisoformat(line["next_probe"]) >= ended_at.replace(microsecond=0)


def test_row_whose_creation_is_unknown_has_no_next_probe(task_runner: TaskRunner, journal: Journal) -> None:
    Single(task_runner, "create_contact_row")
    assert [line["next_probe"] for line in journal("list", "--output", "json").lines] == [None]


def test_resolution_is_in_the_audit_log(send: Send, journal: Journal) -> None:
    journal("resolve", "--not-sent", *send.ids, "--yes")
    with create_session() as session:
        query = select(Log).where(Log.dag_id == send.ids[0], Log.event == "cli_cpaas_journal_resolve")
        (row,) = session.scalars(query).all()
    assert row.task_id == "send"
    assert "--not-sent" in row.extra
    assert send.ids[1] in row.extra


def test_writer_waits_until_the_resolution_is_stored(
    send: Send, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other process writes between the read of the task instance's state and the stored resolution."""
    from cpaas_provider.cli.journal import repository

    seen: list[str] = []
    look = repository.refuse_on_its_way
    calls: list[object] = []

    def meanwhile(instance: Any) -> None:
        look(instance)
        calls.append(instance)
        if len(calls) == 2:
            writer.start()
            writer.join(0.5)
            seen.append("waiting" if writer.is_alive() else "through")

    writer = threading.Thread(target=send.set_state, args=("queued",))
    monkeypatch.setattr(repository, "refuse_on_its_way", meanwhile)
    assert journal("resolve", "--not-sent", *send.ids, "--yes").status == 0
    writer.join(30)
    assert seen == ["waiting"]
    assert send.requests[send.reference]["state"] == "not_sent"


class Backwards(MetastoreBackend):
    """Keeps everything, but not so that the table could be read."""

    def get(self, *args: Any, **kwargs: Any) -> str | None:
        stored = super().get(*args, **kwargs)
        return None if stored is None else stored[::-1]

    def set(self, scope: Any, key: str, value: str, **kwargs: Any) -> None:
        super().set(scope, key, value[::-1], **kwargs)


class TestServersBackend:
    @pytest.fixture(autouse=True)
    def backend(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(airflow.state, "_backend_instance", Backwards())

    def test_workers_backend_is_read_and_written(self, task_runner: TaskRunner, journal: Journal) -> None:
        send = Send(task_runner, phone("ada")).fail_unknown()
        (line,) = journal("show", *send.ids, "--output", "json").lines
        said = journal("resolve", "--not-sent", *send.ids, "--reference", line["reference"], "--yes")
        assert said.status == 0, said.err
        assert send.run.clear().run_try().state == "success"
        assert send.message_count("ada") == 2

    def test_workers_backend_is_listed_by_run(self, task_runner: TaskRunner, journal: Journal) -> None:
        send = Send(task_runner, phone("ada")).fail_unknown()
        said = journal("list", "--dag-id", send.ids[0])
        assert (said.status, "Give --dag-id and --run-id" in said.err) == (1, True)
        found = journal("list", "--dag-id", send.ids[0], "--run-id", send.ids[1], "--output", "json")
        assert [line["state"] for line in found.lines] == ["unknown"]


def rewrite(send: Send, change: Callable[[dict[str, Any]], Any], *, instead: str | None = None) -> None:
    """Change what is stored, as another version would.

    :param instead: what stands there in the place of all of it
    """
    with create_session(scoped=False) as session:
        mine = select(TaskStateStoreModel).where(TaskStateStoreModel.run_id == send.run.run_id)
        for row in session.scalars(mine.order_by(TaskStateStoreModel.id)).all():
            kept = json.loads(row.value)
            change(kept)
            row.value = instead or json.dumps(kept)
            if instead and row.key != JOURNAL_KEY:
                session.delete(row)


def add(send: Send, result: Result) -> None:
    """Store a further result, as another try would."""
    with create_session(scoped=False) as session:
        mine = select(TaskStateStoreModel).where(TaskStateStoreModel.run_id == send.run.run_id)
        last = session.scalars(mine.order_by(TaskStateStoreModel.id)).all()[-1]
        entry = LogEntry(timezone.utcnow(), 1, RETRIES, "body", results=[result])
        session.add(
            copy_row(
                last,
                key=f"{JOURNAL_KEY}.0.{len(journals.segments({row.key: row.value for row in session.scalars(mine)}))}",
                value=json.dumps({**json.loads(last.value), "batches": [entry.as_text()]}),
            )
        )
