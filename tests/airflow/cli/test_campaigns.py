"""``airflow cpaas journal`` on the journals of real campaigns."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import airflow.state
import msgspec.structs
import pytest
from airflow.models.task_state_store import TaskStateStoreModel
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from sqlalchemy import select, update

from cpaas_provider.operators import SmsCampaignOperator
from cpaas_provider.sending.journal.hashing import MEMBER_BYTES
from cpaas_provider.sending.journal.log import MAX_BYTES, ROLL_BYTES
from cpaas_provider.sending.journal.model import Intent, LogEntry, Result, Segment, State
from cpaas_provider.sending.journal.segments import SERIES, part_key, read_series
from tests.airflow.cli import test_journal as of_single_requests
from tests.airflow.cli.test_journal import Journal
from tests.airflow.harness.running import copy_row
from tests.airflow.harness.task_runner import TaskRunner, digits, fault, phone
from tests.airflow.harness.tries import Run, Try, new_dag

task_runner = of_single_requests.task_runner
journal = of_single_requests.journal


class Campaign:
    """A campaign whose requests to two people each go one after the other."""

    def __init__(self, task_runner: TaskRunner, *names: str, **options: Any) -> None:
        self.task_runner = task_runner
        self.names = names
        task_runner.connect("cpaas_default", recipients_per_request=2, max_concurrency=1)
        with new_dag() as dag:
            SmsCampaignOperator(task_id="tell", source=[phone(name) for name in names], content="Hello", **options)
        self.run = Run(task_runner, dag)
        self.ids = [dag.dag_id, self.run.run_id, "tell"]

    def lose_responses(self, count: int) -> Campaign:
        """Have the next answers cut off, and run the try that ends by it."""
        self.task_runner.sandbox.control(*fault("send_sms", "cut_after", times=count))
        self.run_try()
        return self

    def run_try(self) -> Try:
        return self.run.run_try("tell")

    def message_counts(self) -> list[int]:
        """Return how often each got the message."""
        return [len(self.task_runner.inbox_items("sms", digits(name))) for name in self.names]

    # -- the log as it is stored --------------------------------------------------------------------------------------

    @property
    def segments(self) -> list[Segment]:
        rows = {row.key: row.value for row in self.run.state_rows()}

        def get(key: str) -> Any:
            return json.loads(rows[key]) if key in rows else None

        return [Segment.from_json(one.value) for series in range(9) for one in read_series(get, series)]

    @property
    def batches(self) -> list[LogEntry]:
        return [LogEntry.from_text(batch) for segment in self.segments for batch in segment.batches]

    @property
    def states(self) -> dict[str, list[str]]:
        """Return how the requests stand, by reference."""
        intents = {claim.number: claim.reference for batch in self.batches for claim in batch.intents}
        results = {end.number: end.state.value for batch in self.batches for end in batch.results}
        found: dict[str, list[str]] = {}
        for number, reference in intents.items():
            found.setdefault(reference, []).append(results.get(number, "pending"))
        return found

    def references_in(self, state: str) -> list[str]:
        """Return references."""
        return [reference for reference, states in self.states.items() if state in states]

    def rewrite(self, change: Callable[[dict[str, Any]], None], *, all_parts: bool = False) -> None:
        """Change the first part of the log as it is stored, or each."""
        with create_session() as session:
            mine = TaskStateStoreModel.run_id == self.run.run_id, TaskStateStoreModel.key.startswith("cpaas_journal")
            rows = session.scalars(select(TaskStateStoreModel).where(*mine).order_by(TaskStateStoreModel.id)).all()
            # The first part of a journal may be its head alone.
            parts = [row for row in rows if json.loads(row.value)["batches"]]
            for row in parts if all_parts else parts[:1]:
                stored = json.loads(row.value)
                change(stored)
                row.value = json.dumps(stored)

    def leave_pending(self, *, seconds_ago: float) -> Campaign:
        """Have the log as a try leaves it that was killed while its doubtful requests were under way."""

        def forget(stored: dict[str, Any]) -> None:
            for index, text in enumerate(stored["batches"]):
                batch = LogEntry.from_text(text)
                at = datetime.now(UTC) - timedelta(seconds=seconds_ago)
                results = [end for end in batch.results if end.state is not State.UNKNOWN]
                stored["batches"][index] = msgspec.structs.replace(batch, at=at, results=results).as_text()

        self.rewrite(forget, all_parts=True)
        return self

    def fill(self, size: int) -> None:
        """Have the first segment as long as if the campaign had been large."""

        def swell(stored: dict[str, Any]) -> None:
            while (room := size - len(json.dumps(stored["batches"]))) > 0:
                members = random.randbytes(MEMBER_BYTES * min(500, max(1, room // 20)))
                number = 1000 + sum(len(LogEntry.from_text(batch).intents) for batch in stored["batches"])
                batch = LogEntry.from_text(stored["batches"][-1])
                claim = Intent(number, f"cpaas-filled{number}", members)
                end = Result(number, State.ACCEPTED, ("m", 1.0, 1.0))
                filling = LogEntry(batch.at, batch.try_number, batch.clear_epoch, batch.body, [claim], [end])
                stored["batches"].append(filling.as_text())

        self.rewrite(swell)

    def set_state(self, state: str) -> None:
        with create_session() as session:
            session.execute(update(TaskInstance).where(TaskInstance.run_id == self.run.run_id).values(state=state))


NAMES = [f"person {number}" for number in range(8)]


@pytest.fixture
def campaign(task_runner: TaskRunner) -> Campaign:
    """A failed campaign of four requests; the first two are unknown, and their messages were accepted."""
    made = Campaign(task_runner, *NAMES).lose_responses(2)
    assert list(made.states.values()) == [["unknown"], ["unknown"], ["accepted"], ["accepted"]]
    return made


class TestResolveNotSent:
    def test_next_try_sends_only_to_recipients_resolved_as_not_sent(self, campaign: Campaign, journal: Journal) -> None:
        first, second = campaign.references_in("unknown")
        said = journal("resolve", "--not-sent", *campaign.ids, "--reference", first, "--yes")
        assert said.status == 0, said.err
        assert "Resolved as not sent: 1 request to 2 recipients of tell in run" in said.out
        assert f"Still unresolved: 1 request to 2 recipients ({second})" in said.out
        assert campaign.states[first] == ["not_sent"]
        ended = campaign.run.clear().run_try()
        assert (ended.state, ended.report["sent"], ended.report["unknown_recipients"]) == ("failed", 6, 2)
        assert campaign.message_counts() == [2, 2, 1, 1, 1, 1, 1, 1]

    def test_all_unresolved_requests_are_resolved_at_once(self, campaign: Campaign, journal: Journal) -> None:
        said = journal("resolve", "--not-sent", *campaign.ids, "--yes")
        assert "Resolved as not sent: 2 requests to 4 recipients" in said.out
        assert (
            "Next: clear the task. It then sends only to these 4 recipients, if still on its list, and to" in said.out
        )
        ended = campaign.run.clear().run_try()
        assert (ended.state, ended.result["sent"], ended.result["unknown_recipients"]) == ("success", 8, 0)
        assert campaign.message_counts() == [2, 2, 2, 2, 1, 1, 1, 1]
        assert "This journal has no unresolved request" in journal("resolve", "--not-sent", *campaign.ids, "--yes").err

    def test_next_retry_sends_without_a_clear(self, campaign: Campaign, journal: Journal) -> None:
        campaign.set_state("up_for_retry")
        assert (
            "Next: nothing to do. The task's next try" in journal("resolve", "--not-sent", *campaign.ids, "--yes").out
        )
        assert campaign.run_try().state == "success"

    def test_recipient_accepted_in_another_request_is_not_counted_or_sent_to(
        self, task_runner: TaskRunner, journal: Journal
    ) -> None:
        campaign = Campaign(task_runner, "ada", "obi").lose_responses(1)
        reference = campaign.references_in("unknown")[0]

        def reach_one(stored: dict[str, Any]) -> None:
            batch = LogEntry.from_text(stored["batches"][-1])
            (claim,) = (one for kept in stored["batches"] for one in LogEntry.from_text(kept).intents)
            again = Intent(1, "cpaas-again", claim.members[:MEMBER_BYTES])
            end = Result(1, State.ACCEPTED, ("m", 4.0, 1.0))
            stored["batches"].append(
                LogEntry(batch.at, batch.try_number, batch.clear_epoch, batch.body, [again], [end]).as_text()
            )

        campaign.rewrite(reach_one)
        said = journal("resolve", "--not-sent", *campaign.ids, "--yes")
        assert "Resolved as not sent: 1 request to 2 recipients" in said.out
        assert "It then sends only to this recipient, if still on its list" in said.out
        assert campaign.states[reference] == ["not_sent"]
        assert campaign.run.clear().run_try().result["sent"] == 2
        assert sum(campaign.message_counts()) == 3

    def test_resent_batch_is_resolved_with_all_its_requests(self, task_runner: TaskRunner, journal: Journal) -> None:
        campaign = Campaign(task_runner, "ada", "obi", on_unknown="resend").lose_responses(20)
        (reference,) = campaign.states
        assert set(campaign.states[reference]) == {"unknown"}
        assert len(campaign.states[reference]) > 1
        task_runner.sandbox.control("DELETE", "faults")
        journal("resolve", "--sent", *campaign.ids, "--reference", reference, "--id", "msg_9", "--yes")
        assert set(campaign.states[reference]) == {"accepted"}
        before = campaign.message_counts()
        assert campaign.run.clear().run_try().state == "success"
        assert campaign.message_counts() == before


class TestResolveSent:
    def test_task_cleared_after_resolve_sent_sends_nothing(self, campaign: Campaign, journal: Journal) -> None:
        said = journal("resolve", "--sent", *campaign.ids, "--yes")
        assert said.status == 0, said.err
        assert (
            "Next: clear the task. It then sends only to other recipients on its list that were not sent to."
            in said.out
        )
        ended = campaign.run.clear().run_try()
        assert (ended.state, ended.result["sent"], ended.result["unknown_recipients"]) == ("success", 8, 0)
        assert campaign.message_counts() == [1] * 8

    def test_given_id_is_in_the_request(self, campaign: Campaign, journal: Journal) -> None:
        first, second = campaign.references_in("unknown")
        said = journal("resolve", "--sent", *campaign.ids, "--id", "msg_9", "--yes")
        assert (said.status, "An id belongs to one request, and 2 would be resolved" in said.err) == (1, True)
        assert journal("resolve", "--sent", *campaign.ids, "--reference", first, "--id", "msg_9", "--yes").status == 0
        (end,) = (end for batch in campaign.batches for end in batch.results if end.resolution)
        assert (end.state, end.result, end.resolution) == (State.ACCEPTED, ("msg_9", None, None), "sent")
        assert (end.reason or "").startswith("manually resolved as sent (before: ")
        assert campaign.states[second] == ["unknown"]

    def test_charge_of_resolved_requests_counts_for_max_charge(self, task_runner: TaskRunner, journal: Journal) -> None:
        campaign = Campaign(task_runner, *NAMES, max_charge=16, price_per_page=4).lose_responses(2)
        assert sum(campaign.message_counts()) == 4
        journal("resolve", "--sent", *campaign.ids, "--yes")
        assert campaign.run.clear().run_try().state == "failed"
        assert sum(campaign.message_counts()) == 4

    def test_resolution_as_sent_is_not_reversed(self, campaign: Campaign, journal: Journal) -> None:
        reference = campaign.references_in("unknown")[0]
        journal("resolve", "--sent", *campaign.ids, "--reference", reference, "--yes")
        said = journal("resolve", "--not-sent", *campaign.ids, "--reference", reference, "--yes")
        assert (said.status, "manually resolved as sent" in said.err) == (1, True)


class TestSegments:
    """A decision is added to the log and changes nothing that stands there."""

    def test_resolution_is_written_behind_all_segments(self, campaign: Campaign, journal: Journal) -> None:
        campaign.fill(ROLL_BYTES)
        before = {row.key: row.value for row in campaign.run.state_rows()}
        (last,) = campaign.segments
        journal("resolve", "--not-sent", *campaign.ids, "--yes")
        after = {row.key: row.value for row in campaign.run.state_rows()}
        assert {key: after[key] for key in before} == before
        assert len(after) == len(before) + 1
        first, second = campaign.segments
        assert (first.batches, len(second.batches)) == (last.batches, 1)
        assert second.continues(first)
        assert (second.clear_epoch, second.lost) == (first.clear_epoch, first.lost)
        assert not campaign.batches[-1].intents
        assert {row.expires_at for row in campaign.run.state_rows()} == {None}
        assert "No unresolved requests" in journal("show", *campaign.ids).out
        ended = campaign.run.clear().run_try()
        assert (ended.state, ended.result["unknown_recipients"]) == ("success", 0)
        assert campaign.message_counts() == [2, 2, 2, 2, 1, 1, 1, 1]

    def test_resolution_takes_as_many_segments_as_needed(self, task_runner: TaskRunner, journal: Journal) -> None:
        campaign = Campaign(task_runner, "ada").lose_responses(1)

        def multiply(stored: dict[str, Any]) -> None:
            batches = [LogEntry.from_text(batch) for batch in stored["batches"]]
            (first,) = (claim for batch in batches for claim in batch.intents)
            many = [msgspec.structs.replace(first, number=n, reference=f"cpaas-{n}") for n in range(1, 700)]
            last = msgspec.structs.replace(
                batches[-1], at=datetime(2026, 1, 1, tzinfo=UTC), intents=[*batches[-1].intents, *many]
            )
            stored["batches"][-1] = last.as_text()

        campaign.rewrite(multiply)
        said = journal("resolve", "--not-sent", *campaign.ids, "--yes")
        assert said.status == 0, said.err
        assert "Resolved as not sent: 700 requests to 1 recipient" in said.out
        assert "  and 680 more\n" in said.out
        assert len(campaign.segments) > 2
        assert all(len(row.value) < MAX_BYTES + 2000 for row in campaign.run.state_rows())
        assert {states[0] for states in campaign.states.values()} == {"not_sent"}
        assert campaign.run.clear().run_try().result["sent"] == 1

    def test_resolution_after_a_resend_on_clear_goes_to_the_new_journal(
        self, task_runner: TaskRunner, journal: Journal
    ) -> None:
        campaign = Campaign(task_runner, *NAMES, resend_on_clear=True).lose_responses(1)
        journal("resolve", "--sent", *campaign.ids, "--yes")
        campaign.run.clear()
        campaign.lose_responses(1)
        (line,) = journal("list", "--output", "json").lines
        *_, stale, new = campaign.segments
        assert not new.continues(stale)
        said = journal("resolve", "--sent", *campaign.ids, "--yes")
        assert f"  {line['reference']}\n" in said.out
        assert campaign.segments[-1].continues(new)
        campaign.set_state("up_for_retry")
        assert campaign.run_try().state == "success"
        assert campaign.message_counts() == [2] * 8


class TestRefused:
    @pytest.mark.parametrize("state", ["running", "queued", "deferred"])
    def test_running_campaign_is_refused(self, campaign: Campaign, journal: Journal, state: str) -> None:
        campaign.set_state(state)
        said = journal("resolve", "--not-sent", *campaign.ids, "--yes")
        assert (said.status, f"is {state}, so its try may still write" in said.err) == (1, True)
        assert len(campaign.references_in("unknown")) == 2

    def test_request_that_may_be_in_flight_blocks_all_resolutions(self, campaign: Campaign, journal: Journal) -> None:
        """The process that has it under way may write the segment a decision would stand in."""
        unknown = campaign.references_in("unknown")[0]
        campaign.leave_pending(seconds_ago=20)
        claimed = campaign.references_in("pending")[1]

        def know_one(stored: dict[str, Any]) -> None:
            last = LogEntry.from_text(stored["batches"][-1])
            end = Result(0, State.UNKNOWN, reason="the connection broke")
            stored["batches"][-1] = msgspec.structs.replace(last, results=[*last.results, end]).as_text()

        campaign.rewrite(know_one)
        said = journal("resolve", "--not-sent", *campaign.ids, "--reference", unknown, "--yes")
        assert (said.status, f"Started less than 60 seconds ago: {claimed}." in said.err) == (1, True)
        assert said.err.endswith(" s.")
        assert campaign.references_in("unknown") == [unknown]

    def test_pending_requests_of_a_killed_try_can_be_resolved_after_a_minute(
        self, campaign: Campaign, journal: Journal
    ) -> None:
        campaign.leave_pending(seconds_ago=61)
        said = journal("resolve", "--not-sent", *campaign.ids, "--yes")
        assert (said.status, "Resolved as not sent: 2 requests to 4 recipients" in said.out) == (0, True)
        assert campaign.run.clear().run_try().state == "success"
        assert campaign.message_counts() == [2, 2, 2, 2, 1, 1, 1, 1]

    @pytest.mark.parametrize("where", ["a further part", "a further segment", "a further try"])
    def test_journal_that_changed_during_the_confirmation_is_refused(
        self, campaign: Campaign, journal: Journal, monkeypatch: pytest.MonkeyPatch, where: str
    ) -> None:
        parts = sum(row.key.startswith("cpaas_journal") for row in campaign.run.state_rows())
        keys = {"a further part": (0, parts), "a further segment": (1, 0), "a further try": (SERIES, 0)}

        def think(*_: object, **__: object) -> bool:
            value = json.dumps(campaign.segments[0].following().as_json())
            with create_session() as session:
                mine = TaskStateStoreModel.run_id == campaign.run.run_id
                row = session.scalars(select(TaskStateStoreModel).where(mine).limit(1)).one()
                session.add(copy_row(row, key=part_key(*keys[where]), value=value))
            return True

        monkeypatch.setattr("cpaas_provider.cli.terminal.ask_yesno", think)
        said = journal("resolve", "--not-sent", *campaign.ids)
        assert (said.status, "is no longer as it was read" in said.err) == (1, True)
        assert len(campaign.references_in("unknown")) == 2

    def test_missing_reference_is_named(self, campaign: Campaign, journal: Journal) -> None:
        said = journal("resolve", "--sent", *campaign.ids, "--reference", "cpaas-other", "--yes")
        assert (said.status, "no request cpaas-other" in said.err) == (1, True)

    def test_accepted_request_is_not_resolved_as_not_sent(self, campaign: Campaign, journal: Journal) -> None:
        settled = campaign.references_in("accepted")[0]
        said = journal("resolve", "--not-sent", *campaign.ids, "--reference", settled, "--yes")
        assert (said.status, "accepted by the service" in said.err) == (1, True)

    def test_show_warns_of_recipients_of_a_lost_journal(self, campaign: Campaign, journal: Journal) -> None:
        campaign.run.clear(drop_state=True)
        assert campaign.run_try().state == "failed"
        said = journal("show", *campaign.ids)
        assert "The journal does not show whether recipients without a request here were sent to: " in said.out
        said = journal("resolve", "--not-sent", *campaign.ids, "--yes")
        assert (
            said.status,
            "so no command can resolve its requests. To send all the same, start a new run, or clear the task"
            in said.err,
        ) == (1, True)

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda stored: stored["batches"].append("{}"),
            lambda stored: stored["batches"].append({}),
            lambda stored: stored.pop("batches"),
        ],
    )
    def test_unreadable_journal_is_refused(
        self, campaign: Campaign, journal: Journal, spoil: Callable[..., None]
    ) -> None:
        campaign.rewrite(spoil)
        for command in (("show", *campaign.ids), ("resolve", "--not-sent", *campaign.ids, "--yes"), ("list",)):
            said = journal(*command)
            assert (said.status, "This version of the provider cannot read the" in said.err) == (1, True)

    def test_failing_database_stores_nothing(
        self, campaign: Campaign, journal: Journal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object, **__: object) -> None:
            raise OSError("disk full")

        monkeypatch.setattr(airflow.state.get_state_backend(), "set", fail)
        said = journal("resolve", "--not-sent", *campaign.ids, "--yes")
        assert (said.status, "may not have been stored (OSError: disk full)" in said.err) == (1, True)
        assert len(campaign.references_in("unknown")) == 2


class TestListAndShow:
    def test_list_names_unresolved_requests_and_counts_others(self, campaign: Campaign, journal: Journal) -> None:
        said = journal("list", "--output", "json")
        assert [line["reference"] for line in said.lines] == campaign.references_in("unknown")
        line = said.lines[0]
        assert (line["task_id"], line["operation"], line["state"]) == ("tell", "send_sms", "unknown")
        assert (line["recipients"], line["try"]) == (2, 1)
        assert "the connection broke" in line["reason"]
        assert line["started_at"].endswith("+00:00")
        assert "4 requests in all: 2 accepted (4 recipients), 2 unknown (4 recipients)." in said.err
        assert "Unresolved: 2 requests to 4 recipients" in said.err

    def test_list_sums_up_unless_each_is_asked_for(self, campaign: Campaign, journal: Journal) -> None:
        (line,) = journal("list", "--state", "accepted", "--output", "json").lines
        assert (line["reference"], line["recipients"], line["reason"]) == (None, 4, "2 requests together")
        lines = journal("list", "--state", "accepted", "--each", "--output", "json").lines
        assert [line["reference"] for line in lines] == campaign.references_in("accepted")
        lines = journal("list", "--state", "all", "--output", "json").lines
        assert [line["state"] for line in lines] == ["unknown", "unknown", "accepted"]
        assert journal("list", "--state", "rejected", "--output", "json").lines == []

    def test_list_of_both_kinds(self, campaign: Campaign, journal: Journal) -> None:
        single = of_single_requests.Send(campaign.task_runner, phone("ada")).fail_unknown()
        references = [line["reference"] for line in journal("list", "--output", "json").lines]
        assert references == [single.reference, *campaign.references_in("unknown")]

    def test_show_names_unresolved_requests_first(self, campaign: Campaign, journal: Journal) -> None:
        journal(
            "resolve",
            "--sent",
            *campaign.ids,
            "--reference",
            campaign.references_in("unknown")[0],
            "--id",
            "msg_9",
            "--yes",
        )
        lines = journal("show", *campaign.ids, "--output", "json").lines
        assert [(line["state"], line["recipients"]) for line in lines] == [("unknown", 2), ("accepted", 6)]
        lines = journal("show", *campaign.ids, "--each", "--output", "json").lines
        assert [line["state"] for line in lines] == ["unknown", "accepted", "accepted", "accepted"]
        assert (lines[1]["resolution"], lines[1]["result_id"]) == ("sent", "msg_9")
        assert lines[2]["result"]["charge"] == 8

    @pytest.mark.parametrize("output", ["table", "plain", "yaml", "json"])
    def test_list_and_show_in_each_format_hold_no_hash_and_no_number(
        self, campaign: Campaign, journal: Journal, output: str
    ) -> None:
        for command in (("show", *campaign.ids, "--each"), ("list", "--state", "all")):
            said = journal(*command, "--output", output)
            assert said.status == 0, said.err
            assert campaign.references_in("unknown")[0] in said.out
            for member, _ in (pair for batch in campaign.batches for claim in batch.intents for pair in claim.each()):
                assert member.hex() not in said.out
            assert campaign.batches[0].body not in said.out
            assert "2348" not in said.out

    def test_pending_requests_of_a_running_try_are_in_flight_and_not_unresolved(
        self, campaign: Campaign, journal: Journal
    ) -> None:
        campaign.leave_pending(seconds_ago=1)
        assert len(journal("list", "--output", "json").lines) == 2
        campaign.set_state("running")
        said = journal("list", "--output", "json")
        assert [(line["recipients"], line["reason"]) for line in said.lines] == [(4, "2 requests together")]
        for text in (said.err, journal("show", *campaign.ids).out):
            assert "In flight: 2 requests to 4 recipients, in tasks that Airflow shows as running." in text
            assert not re.search("Unresolved:|No unresolved", text)


class TestServersBackend:
    """A backend whose table only its owner can read."""

    @pytest.fixture(autouse=True)
    def backend(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(airflow.state, "_backend_instance", of_single_requests.Backwards())

    def test_workers_backend_is_read_and_written(self, task_runner: TaskRunner, journal: Journal) -> None:
        campaign = Campaign(task_runner, *NAMES).lose_responses(1)
        ids = campaign.ids
        (line,) = journal("list", "--dag-id", ids[0], "--run-id", ids[1], "--output", "json").lines
        said = journal("resolve", "--not-sent", *ids, "--reference", line["reference"], "--yes")
        assert said.status == 0, said.err
        assert campaign.run.clear().run_try().state == "success"
        assert campaign.message_counts() == [2, 2, 1, 1, 1, 1, 1, 1]
