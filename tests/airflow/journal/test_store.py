"""The journal itself: its content, and what happens when Airflow does not store it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import msgspec.structs
import pytest
from airflow.models.task_state_store import TaskStateStoreModel
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse
from airflow.sdk.execution_time.context import TaskStateStoreAccessor
from airflow.utils.session import create_session
from sqlalchemy import select

from cpaas_provider.sending.journal import writer
from tests.airflow.harness.kinds import AIRTIME, EMAIL, KINDS, OTP, RECIPIENT, ROW, SENDS, SMS, FailsAfterSend, Kind
from tests.airflow.harness.task_runner import TaskRunner, address, digits, fault, phone
from tests.airflow.harness.tries import EACH_TRY_HAS_A_ROW, Run

ALL = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
Refuse = Callable[..., None]


def airflow_error(status: int = 500) -> AirflowRuntimeError:
    """Return what the accessor raises when the supervisor got this answer from Airflow's API server."""
    return AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"status_code": status}))


class Clearing:
    """A request during which the task is cleared.

    :param request: the operator's own
    """

    def __init__(self, request: Any, run: Run) -> None:
        self._request = request
        self._run = run

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)

    def build_spec(self, *given: Any) -> Any:
        spec = self._request.build_spec(*given)
        run = self._run

        class ClearedWhileRead(type(spec)):  # type: ignore[misc]  # the operation decides the class
            def read_result(self, response: Any, **how: Any) -> Any:
                run.clear()
                return super().read_result(response, **how)

        return ClearedWhileRead(**msgspec.structs.asdict(spec))


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Refuse:
    """Have the task's state refuse calls of one kind, after some that it takes and up to as many as are said."""
    monkeypatch.setattr(writer, "_FIRST_PAUSE", 0.0)

    def refused(name: str, *, error: Exception | None = None, after: int = 0, times: int = 1000) -> None:
        plain = getattr(TaskStateStoreAccessor, name)
        calls = iter(range(10**6))

        def answer(*args: Any, **kwargs: Any) -> Any:
            if after <= next(calls) < after + times:
                raise error or airflow_error()
            return plain(*args, **kwargs)

        monkeypatch.setattr(TaskStateStoreAccessor, name, answer)

    return refused


class TestUnreachableState:
    @pytest.mark.parametrize(
        ("kind", "call"), [(SMS, "get"), (SMS, "set"), (OTP, "set")], ids=["get", "set", "otp-set"]
    )
    def test_try_that_cannot_store_its_intent_sends_nothing_and_its_retry_sends(
        self, task_runner: TaskRunner, refuse: Refuse, kind: Kind, call: str
    ) -> None:
        refuse(call, times=3 if call == "set" else 1)
        run = kind.run(task_runner)
        first = run.run_try()
        assert (first.state, kind.requests(task_runner), run.journal()) == ("up_for_retry", 0, {})
        assert ("nothing was sent" if call == "get" else "requests to record were not sent") in first.error
        second = run.run_try()
        assert (second.state, len(kind.inbox_items(task_runner))) == ("success", 1)

    @pytest.mark.parametrize("error", [ConnectionError("no server"), ValueError("odd")], ids=repr)
    def test_whatever_airflow_raises_then(self, task_runner: TaskRunner, refuse: Refuse, error: Exception) -> None:
        refuse("set", error=error, times=3)
        first, second = SMS.run(task_runner).run_to_end()
        assert (first.state, second.state, len(SMS.inbox_items(task_runner))) == ("up_for_retry", "success", 1)

    def test_no_try_sends_while_the_state_store_fails(self, task_runner: TaskRunner, refuse: Refuse) -> None:
        refuse("set")
        tries = SMS.run(task_runner).run_to_end()
        assert [one.state for one in tries] == ["up_for_retry"] * 3 + ["failed"]
        assert SMS.requests(task_runner) == 0

    def test_result_that_cannot_be_stored_leaves_the_task_successful_with_a_warning(
        self, task_runner: TaskRunner, refuse: Refuse
    ) -> None:
        refuse("set", after=1)
        run = SMS.run(task_runner)
        done = run.run_try()
        ((reference, entry),) = run.journal().items()
        assert (done.state, len(SMS.inbox_items(task_runner)), entry["state"]) == ("success", 1, "pending")
        assert f"The outcome of 1 request ({reference}) could not be stored" in done.log

    def test_request_whose_result_was_not_stored_is_unknown_to_a_later_try(
        self, task_runner: TaskRunner, refuse: Refuse
    ) -> None:
        refuse("set", after=1, times=6)
        run = SMS.run(task_runner, post_execute=FailsAfterSend(1))
        first, second = run.run_to_end()
        assert (first.state, second.state, second.references) == ("up_for_retry", "failed", list(run.journal()))
        assert SMS.requests(task_runner) == 1

    def test_write_of_a_result_is_retried(self, task_runner: TaskRunner, refuse: Refuse) -> None:
        refuse("set", after=1, times=2)
        run = SMS.run(task_runner)
        assert "could not be stored" not in run.run_try().log
        assert [entry["state"] for entry in run.journal().values()] == ["accepted"]

    def test_journal_of_another_version_sends_nothing(self, task_runner: TaskRunner) -> None:
        run = SMS.run(task_runner, post_execute=FailsAfterSend(1))
        run.run_try()
        run.rewrite_state(version=99)
        failed = run.run_try()
        assert (failed.state, SMS.requests(task_runner)) == ("up_for_retry", 1)
        assert "its version is 99" in failed.error


class TestReplacedTry:
    def test_try_replaced_before_its_intent_sends_nothing(self, task_runner: TaskRunner, refuse: Refuse) -> None:
        refuse("set", error=airflow_error(404))
        failed = SMS.run(task_runner).run_try()
        # If the 404 came from a proxy, the task is retried all the same.
        assert (failed.state, failed.number, SMS.requests(task_runner)) == ("up_for_retry", 1, 0)
        assert "Airflow has replaced this try with another one" in failed.error

    def test_try_replaced_after_its_request_fails_and_names_the_request(
        self, task_runner: TaskRunner, refuse: Refuse
    ) -> None:
        refuse("set", error=airflow_error(404), after=1)
        run = SMS.run(task_runner)
        failed = run.run_try()
        assert (failed.state, SMS.requests(task_runner)) == ("up_for_retry", 1)
        assert failed.references == list(run.journal())

    def test_airflow_ignores_a_replaced_try_and_the_new_try_knows_its_request(self, task_runner: TaskRunner) -> None:
        run = SMS.run(task_runner)

        class Cleared(SMS.operator):  # type: ignore[misc,name-defined]
            """The task is cleared while its request is in flight."""

            def build_request(self) -> Any:
                return Clearing(super().build_request(), run)

        run.dag.get_task("send").__class__ = Cleared
        replaced = run.run_try()
        if EACH_TRY_HAS_A_ROW:
            # Airflow 3.4 replaces a running try once it has ended, and takes its word until then.
            assert (replaced.error, [entry["state"] for entry in run.journal().values()]) == ("", ["accepted"])
            run.dag.get_task("send").__class__ = SMS.operator
            assert (run.run_try().state, SMS.requests(task_runner)) == ("success", 1)
            return
        # Airflow takes no word from it: the new try is as the clear left it.
        assert replaced.state == "restarting"
        assert "Airflow has replaced this try with another one" in replaced.error
        (reference,) = run.journal()
        run.dag.get_task("send").__class__ = SMS.operator
        again = run.run_try()
        assert (again.state, again.references, SMS.requests(task_runner)) == ("failed", [reference], 1)


class TestAllowedRecipients:
    @pytest.fixture(autouse=True)
    def staging(self, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", allowed_recipients=f"{phone('allowed')}, {address('allowed')}")

    def test_recipients_not_allowed_are_left_out_and_counted_before_the_intent(self, task_runner: TaskRunner) -> None:
        run = SMS.run(task_runner, recipients=[phone("allowed"), phone("outsider"), phone("stranger")])
        done = run.run_try()
        assert (done.result["recipients"], done.result["skipped_not_allowed"]) == (1, 2)
        (entry,) = run.journal().values()
        assert len(entry["recipient_hashes"]) == 1
        assert task_runner.inbox_items("sms", digits("outsider")) == []

    @pytest.mark.parametrize("kind", SENDS.values(), ids=SENDS)
    def test_task_without_allowed_recipients_is_skipped_without_intent_and_request(
        self, task_runner: TaskRunner, kind: Kind
    ) -> None:
        run = kind.run(task_runner)
        assert (run.run_try().state, run.journal(), kind.requests(task_runner)) == ("skipped", {}, 0)

    def test_recipient_allowed_later_is_sent_to_and_others_not_again(self, task_runner: TaskRunner) -> None:
        run = SMS.run(task_runner, recipients=[phone("allowed"), phone("later")], post_execute=FailsAfterSend(1))
        run.run_try()
        task_runner.connect("cpaas_default", allowed_recipients=f"{phone('allowed')}, {phone('later')}")
        second = run.run_try()
        assert (second.result["recipients"], second.result["skipped_not_allowed"]) == (2, 0)
        assert [len(task_runner.inbox_items("sms", digits(one))) for one in ("allowed", "later")] == [1, 1]


class TestPrivacy:
    PRIVATE = (
        *(phone(RECIPIENT), digits(RECIPIENT), phone(RECIPIENT)[1:], address(RECIPIENT), RECIPIENT),
        *("Your parcel is here", "Parcel", "246813", "Ada Lovelace", "private.example.com"),
    )

    # A result and an unknown outcome differ by kind; a rejection is stored in the same way of all.
    @pytest.mark.parametrize(
        ("how", "kinds"),
        [("nothing", (SMS, EMAIL, AIRTIME, OTP, ROW)), ("error_under_200", (SMS,)), ("missing_field", (SMS, OTP, ROW))],
        ids=["accepted", "rejected", "unknown"],
    )
    def test_stored_journal_holds_nothing_private(
        self, task_runner: TaskRunner, how: str, kinds: tuple[Kind, ...]
    ) -> None:
        cases: list[tuple[Kind, dict[str, Any]]] = [
            (SMS, {"callback": "https://private.example.com/x", "content": "Your parcel is here, {name}"}),
            (EMAIL, {"reply_to": address(RECIPIENT)}),
            (AIRTIME, {}),
            (OTP, {"token": "246813", "unknown_timeout": 0}),
            (ROW, {"columns": {"Name": RECIPIENT, "Phone": phone(RECIPIENT), "Email": address(RECIPIENT)}}),
        ]
        cases[0][1]["personalisation"] = [{"to": phone(RECIPIENT), "substitutions": {"name": "Ada Lovelace"}}]
        for kind, given in (case for case in cases if case[0] in kinds):
            if how == "missing_field":
                kind.lose(task_runner, how)
            elif how != "nothing":
                task_runner.sandbox.control(*fault(kind.operation, how))
            run = kind.run(task_runner, **given)
            run.run_try()
            assert run.journal(), kind.name
            text = " ".join(f"{row.key} {row.value}" for row in run.state_rows())
            assert [word for word in (*self.PRIVATE, task_runner.sandbox.api_key) if word in text] == [], kind.name

    def test_no_state_left_by_these_tests_holds_anything_private(self, airflow_db: object) -> None:
        with create_session() as session:
            texts = [f"{row.key} {row.value}" for row in session.scalars(select(TaskStateStoreModel))]
        assert [text for text in texts for word in self.PRIVATE if word in text] == []

    def test_recipient_has_another_hash_in_every_run(self, task_runner: TaskRunner) -> None:
        members = set()
        for _ in range(2):
            run = SMS.run(task_runner)
            run.run_try()
            members.update(*(entry["recipient_hashes"] for entry in run.journal().values()))
        assert len(members) == 2


def test_mapped_instances_have_journals_of_their_own(task_runner: TaskRunner) -> None:
    run = SMS.mapped(task_runner, [{"recipients": phone(RECIPIENT), "content": f"Number {n}"} for n in (0, 1, 2)])
    # Even where they reach the same person.
    assert [run.run_try(map_index=index).state for index in (0, 1, 2)] == ["success"] * 3
    journals = [run.journal(map_index=index) for index in (0, 1, 2)]
    assert [len(one) for one in journals] == [1, 1, 1]
    assert len({reference for one in journals for reference in one}) == 3
    assert {one["external_ref"] for one in SMS.inbox_items(task_runner)} == {
        reference for one in journals for reference in one
    }
    again = run.clear(map_index=1).run_try(map_index=1)
    assert (again.state, SMS.requests(task_runner)) == ("success", 3)


BAD_VALUES: tuple[tuple[dict[str, Any], str], ...] = (
    ({"on_unknown": "ignore"}, r"on_unknown must be one of fail, skip, resend; it is 'ignore'\."),
    ({"on_unknown": None}, r"on_unknown must be one of fail, skip, resend; it is None\."),
    ({"unknown_timeout": "soon"}, r"unknown_timeout must be a timedelta or a number of seconds; it is 'soon'\."),
    ({"unknown_timeout": None}, r"unknown_timeout must be a timedelta or a number of seconds; it is None\."),
    ({"unknown_timeout": True}, r"unknown_timeout must be a timedelta or a number of seconds; it is True\."),
    ({"unknown_timeout": -1}, r"unknown_timeout must not be negative; it is -1\."),
    ({"unknown_timeout": dt.timedelta(-1)}, r"unknown_timeout must not be negative; it is .+\."),
    ({"stop_grace_period": -0.5}, r"stop_grace_period must be a number of seconds of at least 0; it is -0\.5\."),
    ({"stop_grace_period": float("nan")}, r"stop_grace_period must be a number of seconds of at least 0; it is nan\."),
    ({"stop_grace_period": "4"}, r"stop_grace_period must be a number of seconds of at least 0; it is '4'\."),
    ({"stop_grace_period": float("inf")}, r"stop_grace_period must be a number of seconds of at least 0; it is inf\."),
    ({"resend_on_clear": "no"}, r"resend_on_clear must be True or False; it is 'no'\."),
    ({"stop_grace_period": None}, r"stop_grace_period must be a number of seconds of at least 0; it is None\."),
)


class TestArguments:
    @pytest.mark.parametrize(
        ("kind", "given", "words"),
        [*((SMS, *bad) for bad in BAD_VALUES), *((kind, *BAD_VALUES[0]) for kind in KINDS.values() if kind is not SMS)],
    )
    def test_invalid_value_is_refused_in_the_dag_file(self, kind: Kind, given: dict[str, Any], words: str) -> None:
        with DAG("badly_written", schedule=None), pytest.raises(ValueError, match=rf"^<Task\(.+\): send>: {words}$"):
            kind.operator(task_id="send", **{**kind.arguments(), **given})

    @pytest.mark.parametrize(
        ("kind", "value", "words"),
        [
            *(
                (kind, "a day", "must be a timedelta or a number of seconds, or 'unlimited'; it is 'a day'")
                for kind in SENDS.values()
            ),
            (SMS, -3, "must not be negative, or 'unlimited'; it is -3"),
        ],
    )
    def test_invalid_max_lateness_is_refused_in_the_dag_file(self, kind: Kind, value: Any, words: str) -> None:
        with DAG("badly_written", schedule=None), pytest.raises(ValueError, match=f"max_lateness {words}"):
            kind.operator(task_id="send", **{**kind.arguments(), "max_lateness": value})

    @pytest.mark.parametrize("given", [{"max_lateness": None}, {"allow_backfill": True}])
    def test_row_knows_nothing_of_lateness(self, given: dict[str, Any]) -> None:
        with DAG("badly_written", schedule=None), pytest.raises(TypeError):
            ROW.operator(task_id="send", **{**ROW.arguments(), **given})

    @ALL
    def test_good_values_are_taken(self, kind: Kind) -> None:
        given = {"on_unknown": "skip", "unknown_timeout": 0, "stop_grace_period": 0, "resend_on_clear": True}
        with DAG("well_written", schedule=None):
            task = kind.operator(task_id="send", **{**kind.arguments(), **given})
        assert task.unknown_timeout == dt.timedelta()

    @pytest.mark.parametrize("kind", SENDS.values(), ids=SENDS)
    def test_allow_backfill_that_is_text_is_refused(self, kind: Kind) -> None:
        with pytest.raises(ValueError, match=r"allow_backfill must be True or False; it is 'no'\."):
            kind.operator(task_id="send", **{**kind.arguments(), "allow_backfill": "no"})


class TestWorkersBackend:
    """There a lost object reads like one that never was, and a replaced try can write: the journal goes past it."""

    @pytest.fixture(autouse=True)
    def backend(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AIRFLOW__WORKERS__STATE_STORE_BACKEND", "no.such.Backend")

    def test_journal_lies_at_the_server(self, task_runner: TaskRunner) -> None:
        run = SMS.run(task_runner, post_execute=FailsAfterSend(1))
        first, second = run.run_to_end()
        assert (first.state, second.state, SMS.requests(task_runner)) == ("up_for_retry", "success", 1)
        assert [entry["state"] for entry in run.journal().values()] == ["accepted"]
        assert {row.expires_at for row in run.state_rows()} == {None}

    def test_try_that_was_replaced_writes_nothing(self, task_runner: TaskRunner) -> None:
        run = SMS.run(task_runner)

        class Cleared(SMS.operator):  # type: ignore[misc,name-defined]
            """The task is cleared while its request is in flight."""

            def build_request(self) -> Any:
                return Clearing(super().build_request(), run)

        run.dag.get_task("send").__class__ = Cleared
        if EACH_TRY_HAS_A_ROW:
            assert (run.run_try().error, run.run_try().state, SMS.requests(task_runner)) == ("", "success", 1)
            return
        assert "has replaced this try with another one" in run.run_try().error
        assert [entry["state"] for entry in run.journal().values()] == ["pending"]
