"""deliver_with_fallback under an idempotency key and under a frequency cap: no channel sends twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from cpaas_provider.delivery.receiver.app import create_app
from cpaas_provider.hooks._receiver import get_receiver_connection
from cpaas_provider.operators.sms import SmsCampaignOperator
from cpaas_provider.task_groups import deliver_with_fallback
from tests.airflow.harness.examples import bounded
from tests.airflow.harness.running import run
from tests.airflow.harness.task_runner import TaskRunner
from tests.airflow.harness.tries import Run, new_dag
from tests.ports import listening
from tests.sandbox import connection_json
from tests.unit.delivery.running_receiver import running

pytestmark = pytest.mark.usefixtures("own_database")

NUMBERS = [f"234803555080{number}" for number in range(1, 6)]
ADDRESSES = [f"person{number}@example.com" for number in range(1, 6)]
SENDERS = {"sms": "Example", "whatsapp": "Example", "email": "news@example.com"}
ONE = (1, timedelta(days=7))
OUTCOMES = {"outcomes": {"sms": dict.fromkeys(NUMBERS[2:], "undelivered")}}
KEY = {"idempotency_key": "closed-on-friday"}
CAP = {"frequency_cap": ONE, "frequency_category": "notices"}


@pytest.fixture(autouse=True)
def reports(sandbox: Any, cpaas_default: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """A receiver for the reports. The SMS reaches two of five recipients, and WhatsApp none of the others."""
    app = create_app(get_receiver_connection, guard=None, emit_metric=lambda *_: None)
    with listening() as (listener, url), running(app, listener):
        extras = {"callback_url": url, "callback_secret": "of-callbacks", "max_concurrency": 1}
        monkeypatch.setenv("AIRFLOW_CONN_CPAAS_DEFAULT", connection_json(sandbox.connection, **extras))
        sandbox.control("POST", "seed", OUTCOMES)
        yield extras


def group_dag(folder: Any, **common: Any) -> Any:
    with new_dag() as dag:
        deliver_with_fallback(
            "group",
            source=[{"phone": phone, "email": email} for phone, email in zip(NUMBERS, ADDRESSES, strict=True)],
            steps=[
                {"channel": channel, "content": "Closed on Friday.", "sender_id": SENDERS[channel]}
                for channel in ("sms", "whatsapp", "email")
            ],
            results_folder=f"file://{folder}/{{{{ run_id }}}}",
            wait=60,
            **common,
        )
    return dag


def run_group(folder: Any, **common: Any) -> Any:
    with bounded(120):
        return run(group_dag(folder, **common))


def messages(sandbox: Any) -> dict[str, Counter[str]]:
    """Return how many messages each recipient got on each channel."""
    items = sandbox.inbox("sms")["items"]
    found = {
        channel: Counter(item["recipient"] for item in items if item["channel"] == channel)
        for channel in ("sms", "whatsapp")
    }
    return found | {"email": Counter(item["recipient"] for item in sandbox.inbox("email")["items"])}


EACH_CHANNEL = {"sms": Counter(NUMBERS), "whatsapp": Counter(NUMBERS[2:]), "email": Counter(ADDRESSES[2:])}
"""Each channel sends to recipients the previous channel did not reach."""


@pytest.mark.parametrize("common", [KEY, CAP, KEY | CAP], ids=["key", "cap", "both"])
def test_each_channel_sends_to_recipients_the_previous_did_not_reach(sandbox: Any, tmp_path: Any, common: Any) -> None:
    done = run_group(tmp_path, **common)
    assert done.state("group.email") == "success"
    assert messages(sandbox) == EACH_CHANNEL


@pytest.mark.parametrize("common", [KEY, KEY | CAP], ids=["key", "both"])
def test_second_run_under_the_key_sends_nothing(sandbox: Any, tmp_path: Any, common: Any) -> None:
    run_group(tmp_path, **common)
    again = run_group(tmp_path, **common)
    assert [again.state(f"group.{channel}") for channel in SENDERS] == ["success"] * 3
    assert again.xcom("group.whatsapp")["sent"] == 3
    assert messages(sandbox) == EACH_CHANNEL


def test_second_run_under_the_key_sends_what_the_first_did_not(sandbox: Any, tmp_path: Any) -> None:
    sandbox.control("POST", "faults", {"operation": "send_sms", "kind": "unauthorized", "after": 1})
    first = run_group(tmp_path, **KEY, **CAP)
    assert (first.state("group.sms"), first.state("group.whatsapp")) == ("success", "failed")
    sandbox.control("DELETE", "faults")
    sandbox.control("POST", "seed", OUTCOMES)
    assert run_group(tmp_path, **KEY, **CAP).state("group.email") == "success"
    assert messages(sandbox) == EACH_CHANNEL


def test_second_run_finds_recipients_at_the_cap(sandbox: Any, tmp_path: Any) -> None:
    run_group(tmp_path, **CAP)
    again = run_group(tmp_path, **CAP)
    assert (again.state("group.sms"), again.state("group.whatsapp")) == ("skipped", "skipped")
    assert {name: messages(sandbox)[name] for name in ("sms", "whatsapp")} == {
        name: EACH_CHANNEL[name] for name in ("sms", "whatsapp")
    }


def test_group_counts_as_one_contact(sandbox: Any, tmp_path: Any) -> None:
    """A recipient of an SMS and a WhatsApp message of the group has had one of two messages."""
    two = {**CAP, "frequency_cap": (2, timedelta(days=7))}
    run_group(tmp_path, **two)
    for expected in (5, 0):
        with new_dag() as dag:
            SmsCampaignOperator(task_id="offer", source=NUMBERS, content="Offer", sender_id="Example", **two)
        offer = run(dag)
        assert (offer.xcom("offer") or {"sent": 0})["sent"] == expected


@pytest.mark.parametrize("common", [KEY, CAP, KEY | CAP], ids=["key", "cap", "both"])
def test_retry_and_clear_of_a_channel_send_nothing_twice(
    reports: dict[str, Any], task_runner: TaskRunner, tmp_path: Any, common: Any
) -> None:
    sandbox = task_runner.sandbox
    task_runner.connect("cpaas_default", **reports)
    sandbox.control("POST", "seed", OUTCOMES)
    tries = Run(task_runner, group_dag(tmp_path, **common))
    with bounded(180):
        tries.run_to_end("group.sms")
        tries.run_to_end("group.sms_delivered")
        sandbox.control("POST", "faults", {"operation": "send_sms", "kind": "rate_limit", "times": 5, "retry_after": 0})
        assert [one.state for one in tries.run_to_end("group.whatsapp")] == ["up_for_retry", "success"]
        tries.run_to_end("group.whatsapp_delivered")
        tries.run_to_end("group.email")
        assert messages(sandbox) == EACH_CHANNEL
        for task_id in ("group.sms", "group.whatsapp", "group.email"):
            assert tries.clear(task_id).run_to_end(task_id)[-1].state == "success"
    assert messages(sandbox) == EACH_CHANNEL


def test_campaign_that_failed_is_not_taken_for_one_that_sent_nothing(
    reports: dict[str, Any], task_runner: TaskRunner, tmp_path: Any
) -> None:
    """As if a person marked it successful to go on."""
    sandbox = task_runner.sandbox
    task_runner.connect("cpaas_default", **reports, recipients_per_request=1)
    sandbox.control("POST", "faults", {"operation": "send_sms", "kind": "unauthorized", "after": 1})
    tries = Run(task_runner, group_dag(tmp_path))
    with bounded(180):
        assert tries.run_to_end("group.sms")[-1].state == "failed"
        sandbox.control("DELETE", "faults")
        assert tries.run_to_end("group.sms_delivered")[-1].state == "skipped"
        assert tries.run_to_end("group.whatsapp")[-1].state == "failed"
    assert messages(sandbox)["sms"].total() == 1
    assert messages(sandbox)["whatsapp"] == Counter()
