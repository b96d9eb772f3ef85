"""A campaign over each kind of source, whole and in parts; how each is to be stands in a file beside its source."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, task

from cpaas_provider.operators import EmailCampaignOperator, SmsCampaignOperator
from cpaas_provider.sending.partitions import partitions
from cpaas_provider.sources import SqlSource

FOLDER = Path(os.environ["KILLED_CAMPAIGNS"])
FILES = {"csv": "csv", "jsonl": "jsonl", "parquet": "parquet"}
KINDS = ("list", "xcom", *FILES, "sqlite", "postgres")
PARTS = 4
# As in the oracle.
TRIES = {"retries": 9, "retry_delay": timedelta(seconds=1)}


class ForgetfulSms(SmsCampaignOperator):
    """Knows nothing of what earlier tries did: what must be found to arrive twice."""

    def make_attempt(self, runtime: Any, **resumed: Any) -> Any:
        from cpaas_provider.sending.journal.log import JournalLog

        JournalLog.replay = lambda journal: iter(())
        return super().make_attempt(runtime, **resumed)


class CredulousSms(SmsCampaignOperator):
    """Takes what was claimed for sent: what must be found to be lost."""

    def make_attempt(self, runtime: Any, **resumed: Any) -> Any:
        from cpaas_provider.sending.campaign import journal_index
        from cpaas_provider.sending.journal.model import State

        journal_index.PRECEDENCE[State.PENDING] = journal_index._SETTLED
        return super().make_attempt(runtime, **resumed)


OPERATORS = {
    "sms": SmsCampaignOperator,
    "email": EmailCampaignOperator,
    "forgetful": ForgetfulSms,
    "credulous": CredulousSms,
}


@task(task_id="people", **TRIES)
def people_of(file: str) -> list[dict[str, str]]:
    return list(json.loads(Path(file).read_text()))


def source_of(kind: str, name: str) -> Any:
    """Return where the people of a campaign are."""
    listed = FOLDER / f"{name}.json"
    if kind == "list":
        return json.loads(listed.read_text()) if listed.exists() else []
    if kind == "xcom":
        return people_of(str(listed))
    if kind in FILES:
        return str(FOLDER / f"{name}.{FILES[kind]}")
    table = "people" if kind == "sqlite" else f"{os.environ.get('KILLED_TABLES', 'killed')}_{name}"
    return SqlSource(f"killed_{name}", f"SELECT phone, name FROM {table} ORDER BY place")


for kind in KINDS:
    for mapped in (False, True):
        name = f"{kind}_mapped" if mapped else kind
        given = json.loads((FOLDER / f"{name}.terms").read_text())
        operator = OPERATORS[given.pop("operator")]
        with DAG(name, schedule=None, max_active_tasks=16, max_active_runs=1):
            given |= {"source": source_of(kind, name), "recipient_column": "phone", "task_id": "send", **TRIES}
            if mapped:
                operator.partial(**given).expand(partition=partitions(PARTS))
            else:
                operator(**given)
