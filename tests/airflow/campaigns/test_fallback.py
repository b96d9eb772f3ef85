"""deliver_with_fallback as a real run: each channel sends once to recipients the previous channel did not reach."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import BaseOperator, task_group
from airflow.sdk.exceptions import AirflowSkipException

from cpaas_provider.api.recipients.invalid import InvalidRecipientError
from cpaas_provider.api.recipients.msisdn import NumberReader
from cpaas_provider.task_groups import UndeliveredSource, deliver_with_fallback
from tests.airflow.harness.examples import bounded
from tests.airflow.harness.running import run
from tests.airflow.harness.tries import new_dag
from tests.reading import results_in

pytestmark = pytest.mark.cpaas(region="NG")

NUMBERS = [f"234803555080{number}" for number in range(1, 6)]
ADDRESSES = [f"person{number}@example.com" for number in range(1, 6)]
GROUP = "closed_on_friday"
SENDERS = {"sms": "Example", "whatsapp": "Example", "email": "news@example.com"}


@pytest.fixture
def sandbox(cpaas_sandbox):
    return cpaas_sandbox


@pytest.fixture
def fallback(run_example, sandbox, cpaas_receiver, tmp_path):
    """Run the example for five recipients and one without a phone, with a receiver for the reports."""
    file = tmp_path / "six.csv"
    rows = [f"+{phone},{email},Person" for phone, email in zip(NUMBERS, ADDRESSES, strict=True)]
    file.write_text("\n".join(["phone,email,name", *rows, ",without.phone@example.com,Person", ""]))
    sandbox.connect(recipients_per_request=1)
    return lambda: run_example("fallback_campaign", csv=str(file), folder=f"file://{tmp_path}/out")


def sent(sandbox: Any, kind: str) -> Counter[str]:
    return Counter(message.recipient for message in (sandbox.sms if kind == "sms" else sandbox.emails))


def by_channel(sandbox: Any, channel: str) -> Counter[str]:
    return Counter(message.recipient for message in sandbox.sms if message.channel == channel)


class Holiday(BaseOperator):
    """A task that skips what comes after it."""

    def execute(self, context: Any) -> None:
        raise AirflowSkipException


class TestRun:
    def test_each_channel_sends_to_recipients_the_previous_did_not_reach(self, fallback, sandbox):
        sandbox.set_outcomes(sms=dict.fromkeys(NUMBERS[2:], "undelivered"))
        done = fallback()
        assert done.state == "success", done.states
        assert by_channel(sandbox, "sms") == Counter(NUMBERS)
        assert by_channel(sandbox, "whatsapp") == Counter(NUMBERS[2:])
        assert sent(sandbox, "email") == Counter([*ADDRESSES[2:], "without.phone@example.com"])

    def test_group_in_a_dag_with_native_rendering_does_the_same(self, fallback, sandbox, tmp_path):
        sandbox.set_outcomes(sms=dict.fromkeys(NUMBERS[2:], "undelivered"))
        params = {"csv": str(tmp_path / "six.csv"), "folder": f"file://{tmp_path}/out", "text": "1e5"}
        with new_dag(params=params, render_template_as_native_obj=True) as dag:
            deliver_with_fallback(
                GROUP,
                source="{{ params.csv }}",
                steps=[
                    {"channel": channel, "content": "{{ params.text }}", "sender_id": SENDERS[channel]}
                    for channel in ("sms", "email")
                ],
                results_folder="{{ params.folder }}",
                wait=30,
            )
        with bounded(60):
            done = run(dag)
        assert done.state(f"{GROUP}.email") == "success"
        assert by_channel(sandbox, "sms") == Counter(NUMBERS)
        assert sent(sandbox, "email") == Counter([*ADDRESSES[2:], "without.phone@example.com"])
        assert {email.text for email in sandbox.emails} == {"1e5"}

    @pytest.mark.parametrize(("channel", "status"), [("sms", "clicked"), ("email", "clicked"), ("email", "opened")])
    def test_recipient_who_opened_or_clicked_gets_nothing_on_the_next_channel(
        self, fallback, sandbox, tmp_path, channel: str, status: str
    ) -> None:
        first, failed = (NUMBERS, "undelivered") if channel == "sms" else (ADDRESSES, "bounced")
        sandbox.set_outcomes(**{channel: {first[0]: status, first[1]: failed}})
        # All reports of a recipient come together, the strongest first.
        sandbox.set(report_disorder=1)
        sms = {"channel": "sms", "content": "Closed on Friday.", "sender_id": SENDERS["sms"], "is_trackable": True}
        email = {"channel": "email", "content": "Closed on Friday.", "sender_id": SENDERS["email"]}
        with new_dag() as dag:
            deliver_with_fallback(
                GROUP,
                source=str(tmp_path / "six.csv"),
                steps=[sms, email] if channel == "sms" else [email, sms],
                results_folder=f"file://{tmp_path}/out",
                wait=30,
            )
        with bounded(60):
            done = run(dag)
        assert (done.state(f"{GROUP}.sms"), done.state(f"{GROUP}.email")) == ("success", "success")
        lines = results_in(tmp_path / f"out/{channel}_delivered.jsonl")
        assert {line["recipient"]: line["outcome"] for line in lines}[first[0]] == status
        if channel == "sms":
            assert sent(sandbox, "email") == Counter([ADDRESSES[1], "without.phone@example.com"])
        else:
            assert sent(sandbox, "sms") == Counter([NUMBERS[1]])

    def test_later_channels_are_skipped_if_all_are_reached(self, fallback, sandbox, tmp_path):
        file = tmp_path / "six.csv"
        file.write_text(file.read_text().replace(",without.phone@example.com,Person\n", ""))
        done = fallback()
        assert done.state == "success"
        assert done.states == {
            f"{GROUP}.sms": "success",
            f"{GROUP}.sms_delivered": "success",
            f"{GROUP}.whatsapp": "skipped",
            f"{GROUP}.whatsapp_delivered": "skipped",
            f"{GROUP}.email": "skipped",
        }
        assert by_channel(sandbox, "sms") == Counter(NUMBERS)
        assert sent(sandbox, "email") == Counter()

    def test_group_that_is_skipped_from_outside_sends_on_no_channel(self, receiver, sandbox, tmp_path) -> None:
        with new_dag() as dag:
            group = deliver_with_fallback(
                GROUP,
                source=[{"phone": NUMBERS[0], "email": ADDRESSES[0]}],
                steps=[{"channel": one, "content": "Closed.", "sender_id": SENDERS[one]} for one in SENDERS],
                results_folder=f"file://{tmp_path}/out",
                wait=30,
            )
            Holiday(task_id="holiday") >> group
        with bounded(60):
            done = run(dag)
        assert {done.state(f"{GROUP}.{channel}") for channel in SENDERS} == {"skipped"}
        assert "left no report" in done.xcom(f"{GROUP}.whatsapp", key="skip_reason")
        assert (sandbox.sms, sandbox.emails) == ([], [])

    def test_failed_campaign_stops_the_later_channels(self, fallback, sandbox):
        sandbox.fault("unauthorized", "send_sms")
        done = fallback()
        assert done.state == "failed"
        assert done.states[f"{GROUP}.email"] == "upstream_failed"
        assert sent(sandbox, "email") == Counter()


class TestSource:
    @pytest.fixture
    def results(self, tmp_path: Path) -> Path:
        file = tmp_path / "delivered.jsonl"
        lines = [
            {"recipient": NUMBERS[0], "outcome": "delivered"},
            {"recipient": NUMBERS[1], "outcome": "undelivered"},
            {"recipient": NUMBERS[2], "outcome": "in_flight"},
            {"recipient": ADDRESSES[3].upper(), "outcome": "delivered"},
        ]
        file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return file

    def rows(self, source: UndeliveredSource, column: str) -> list[Any]:
        with source.open() as table:
            return [row.values[0] for row in table.rows([column])]

    def test_recipient_is_known_in_any_usual_form(self, results: Path) -> None:
        forms = [
            f"+{NUMBERS[0]}",
            f"0{NUMBERS[0][3:]}",
            NUMBERS[0],
            f"+{NUMBERS[1]}",
            f"+{NUMBERS[2]}",
            "nonsense",
            None,
        ]
        rows = [{"phone": one, "name": "Ada"} for one in forms]
        source = UndeliveredSource(rows, results, column="phone", region="NG")
        assert self.rows(source, "phone") == [f"+{NUMBERS[1]}", f"+{NUMBERS[2]}", "nonsense", None]

    @pytest.mark.usefixtures("sandbox")
    def test_region_of_the_connection_is_that_of_the_message(self, results: Path) -> None:
        rows = [{"phone": f"0{NUMBERS[0][3:]}"}]
        source = UndeliveredSource(rows, results, column="phone", region="GH", cpaas_conn_id="cpaas_default")
        assert self.rows(source, "phone") == []

    def test_number_that_only_a_tolerant_connection_reads_is_known(self, tmp_path: Path) -> None:
        results, number = tmp_path / "delivered.jsonl", "2341990000001"
        results.write_text(json.dumps({"recipient": f"+{number}", "outcome": "delivered"}))
        with pytest.raises(InvalidRecipientError):
            NumberReader().read(f"+{number}")
        assert NumberReader(None, "possible").read(f"+{number}") == number
        assert self.rows(UndeliveredSource([{"phone": f"+{number}"}], results, column="phone"), "phone") == []

    def test_addresses_are_compared_without_case(self, results: Path) -> None:
        source = UndeliveredSource([{"email": one} for one in ADDRESSES], results, column="email")
        assert self.rows(source, "email") == [one for one in ADDRESSES if one != ADDRESSES[3]]

    @pytest.mark.parametrize(
        "one", ["ada@bücher.example", "ada@xn--bcher-kva.example", "\ufeffAda@BU\u0308CHER.example"]
    )
    @pytest.mark.parametrize("other", ["ada@bücher.example", "ada@xn--bcher-kva.example"])
    def test_addresses_are_compared_in_one_form(self, tmp_path: Path, one: str, other: str) -> None:
        results = tmp_path / "delivered.jsonl"
        results.write_text(json.dumps({"recipient": other, "outcome": "delivered"}))
        assert self.rows(UndeliveredSource([{"email": one}], results, column="email"), "email") == []

    def test_first_number_of_a_file_without_a_header_is_not_shown(self, results: Path, tmp_path: Path) -> None:
        from cpaas_provider.sources.base import SourceError

        headless = tmp_path / "headless.csv"
        headless.write_text(f"{NUMBERS[0]},Ada\n{NUMBERS[1]},Bola\n")
        with pytest.raises(SourceError, match=r"has no column phone\. Its first line holds") as told:
            self.rows(UndeliveredSource(str(headless), results, column="phone"), NUMBERS[0])
        assert NUMBERS[0] not in str(told.value)

    def test_missing_results_file_is_an_error_unless_nothing_was_accepted(self, tmp_path: Path) -> None:
        from cpaas_provider.sources.base import SourceError

        missing, rows = tmp_path / "missing.jsonl", [{"phone": NUMBERS[0]}]
        assert self.rows(UndeliveredSource(rows, missing, column="phone", accepted="0"), "phone") == [NUMBERS[0]]
        for accepted in (None, "3", ""):
            with pytest.raises(SourceError):
                self.rows(UndeliveredSource(rows, missing, column="phone", accepted=accepted), "phone")

    def test_line_that_cannot_be_read_is_an_error(self, results: Path) -> None:
        from cpaas_provider.sources.base import SourceError

        with results.open("a") as file:
            file.write("{broken\n")
        with pytest.raises(SourceError, match="Line 5 of the delivery results"):
            self.rows(UndeliveredSource([{"phone": NUMBERS[0]}], results, column="phone"), "phone")


@pytest.fixture
def receiver(airflow_db, sandbox, cpaas_receiver):
    """Have two connections whose delivery reports arrive."""
    sandbox.connect("second")


class TestUnknown:
    """A request of unknown outcome may have reached its recipients."""

    @pytest.fixture
    def group(self, receiver, sandbox, tmp_path):
        """Run two channels, of which the first one's responses are lost."""

        def run_group(*, rows: int, wait: float, kind: str, **params: Any) -> Any:
            sandbox.fault(kind, "send_sms", **params)
            with new_dag() as dag:
                deliver_with_fallback(
                    "group",
                    source=[{"phone": NUMBERS[row], "email": ADDRESSES[row]} for row in range(rows)],
                    steps=[
                        {"channel": channel, "content": "Closed on Friday.", "sender_id": SENDERS[channel]}
                        for channel in ("sms", "email")
                    ],
                    results_folder=f"file://{tmp_path}/out",
                    wait=wait,
                    on_unknown="skip",
                    unknown_timeout=0,
                )
            with bounded(120):
                return run(dag)

        return run_group

    @pytest.mark.parametrize("rows", [1, 3])
    def test_unknown_step_waits_for_reports(self, group, sandbox, rows: int) -> None:
        sandbox.set(report_delay_seconds=3)
        done = group(rows=rows, wait=60, kind="cut_after")
        assert (done.state("group.sms"), done.state("group.sms_delivered")) == ("success", "success")
        assert (sent(sandbox, "sms"), sent(sandbox, "email")) == (Counter(NUMBERS[:rows]), Counter())

    def test_recipient_without_a_report_gets_the_next_channel_after_the_wait(self, group, sandbox) -> None:
        done = group(rows=2, wait=3, kind="cut_before")
        assert (done.state("group.sms_delivered"), done.state("group.email")) == ("skipped", "success")
        assert (sent(sandbox, "sms"), sent(sandbox, "email")) == (Counter(), Counter(ADDRESSES[:2]))


class TestForms:
    """Recipients that were delivered to are known in whatever form the source has them."""

    @pytest.mark.parametrize(
        ("steps", "rows"),
        [
            # Numbers of the connection's region, whether the group names it or not.
            (("sms", "email"), [("08035550801", "a@example.com"), ("+2348035550802", "b@example.com")]),
            (("sms", "whatsapp", "email"), [("0803 555 0801", "a@example.com"), (2348035550802, "b@example.com")]),
            # Addresses as a campaign reads them: without invisible marks and capitals.
            (("email", "sms"), [("08035550801", "\u200bA.B@EXAMPLE.com "), ("08035550802", "Postmaster@example.com")]),
        ],
    )
    @pytest.mark.parametrize("conn_id", ["cpaas_default", "{{ 'SECOND' | lower }}"])
    def test_delivered_recipients_are_not_sent_to_by_the_next_channel(
        self, receiver, sandbox, tmp_path, steps, rows, conn_id
    ) -> None:
        with new_dag() as dag:
            deliver_with_fallback(
                "group",
                source=[{"phone": phone, "email": address} for phone, address in rows],
                steps=[{"channel": one, "content": "Closed on Friday.", "sender_id": SENDERS[one]} for one in steps],
                results_folder=f"file://{tmp_path}/out",
                wait=60,
                cpaas_conn_id=conn_id,
            )
        with bounded(120):
            done = run(dag)
        assert done.state(f"group.{steps[0]}") == "success"
        assert [done.state(f"group.{one}") for one in steps[1:]] == ["skipped"] * (len(steps) - 1)
        assert len(sandbox.sms) + len(sandbox.emails) == len(rows)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"steps": [{"channel": "sms"}]}, "at least two channels"),
        ({"steps": [{"channel": "sms"}, {"channel": "fax"}]}, "step 2 must be a mapping whose channel"),
        ({"steps": [{"channel": "sms"}, {"channel": "sms"}]}, "a channel is given twice"),
        ({"steps": [{"channel": "sms", "task_id": "x"}, {"channel": "email"}]}, "has task_id, which the group sets"),
        ({"results_folder": " "}, "results_folder must be"),
        ({"source": None}, "source is None"),
    ],
)
def test_group_that_cannot_work_is_refused_in_the_dag_file(given: dict[str, Any], words: str) -> None:
    steps = [{"channel": "sms", "content": "Hello"}, {"channel": "email", "content": "Hello"}]
    with pytest.raises(ValueError, match=words), new_dag():
        deliver_with_fallback("group", **{"source": [], "steps": steps, "results_folder": "out", **given})


def test_each_instance_of_a_mapped_group_reads_its_own_reports(receiver, sandbox, tmp_path) -> None:
    sandbox.set_outcomes(sms=dict.fromkeys(NUMBERS[1::2], "undelivered"))

    @task_group
    def branch(source: Any) -> None:
        deliver_with_fallback(
            "group",
            source=source,
            steps=[
                {"channel": channel, "content": "Closed on Friday.", "sender_id": SENDERS[channel]}
                for channel in ("sms", "email")
            ],
            results_folder=f"file://{tmp_path}/{{{{ ti.map_index }}}}",
            wait=60,
        )

    people = [{"phone": NUMBERS[row], "email": ADDRESSES[row]} for row in range(4)]
    with new_dag() as dag:
        branch.expand(source=[people[:2], people[2:]])
    with bounded(120):
        run(dag)
    assert sent(sandbox, "sms") == Counter(NUMBERS[:4])
    assert sent(sandbox, "email") == Counter(ADDRESSES[1:4:2])
