"""A campaign from a CSV: try it dry, keep the contact list, send personal SMS and emails, see what arrives, sum it up.

Copy this file and the folder ``campaign_steps`` beside it.
"""

from __future__ import annotations

import json
import logging
import os
import re
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import ObjectStoragePath, Param, dag, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException

from cpaas_provider.hooks.retry_policy import CpaasRetryPolicy
from cpaas_provider.operators import EmailCampaignOperator, SmsCampaignOperator
from cpaas_provider.sensors import DeliverySensor
from cpaas_provider.sources import CsvSource

log = logging.getLogger(__name__)

CONTACT_COLUMNS = {
    "Name": "name",
    "Phone": "phone",
    "Email": "email",
    "Birthday": "birthday",
    "Plan": "plan",
    "Points": "points",
    "Tags": "tags",
}
SMS_TEXT = "Hello {name}, calls to your family are free this weekend. Enjoy! Reply STOP to hear no more of us."
EMAIL_TEXT = """Dear {name},

calls to your family are free this weekend, from Friday 18:00 to Monday 06:00.

To hear no more of us, just answer with STOP.
"""

# Sent to before anybody else, and alone: where that fails, nobody else gets anything. On a connection for
# staging they have to be among its allowed_recipients.
COLLEAGUES = [{"phone": "+234 803 555 0100", "email": "ada.colleague@example.com", "name": "Ada"}]

# [start howto_campaign_guards]
GUARDS = {
    "max_recipients": 5_000,
    "max_charge": 20_000,  # for each of the two, in the account's currency
    "max_failure_ratio": 0.05,  # invalid rows and rejected recipients together; 0 where none is to be tolerated
}
# [end howto_campaign_guards]

# Some phones are off for days; after this time the campaign is judged by what is known.
DELIVERED_WITHIN = timedelta(hours=6)
MIN_DELIVERED = 0.7  # of those sent to; less fails the run

PARAMS = {
    "cpaas_conn_id": Param("cpaas_default", type="string", description="The connection to the service."),
    "csv": Param(
        str(Path(__file__).parent / "data" / "customers.csv"),
        type="string",
        description="The customers: a path or URL Airflow's object storage can read, with columns phone, email, name.",
    ),
    "folder": Param(
        None,
        type=["null", "string"],
        description="Where outcomes are kept: a folder all workers share. Left out: below AIRFLOW_HOME.",
    ),
    "columns": Param(CONTACT_COLUMNS, type="object", description="Column of the contact list: column of the CSV."),
    "sms_sender_id": Param("Example", type="string", maxLength=11, description="What the phone shows as sender."),
    "sms_text": Param(SMS_TEXT, type="string", description="The SMS; placeholders are columns of the CSV."),
    "email_sender_id": Param("news@example.com", type="string", description="The sender's address."),
    "email_subject": Param("A free weekend for {name}", type="string", description="Subject of the email."),
    "email_text": Param(EMAIL_TEXT, type="string", description="The email, with the same placeholders."),
}


# [start howto_custom_source]
class Customers(CsvSource):
    """Our CSV, with two things that only we know of it; the rows go through one by one, however many they are."""

    @contextmanager
    def open(self):
        """Open it for one reading."""
        with super().open() as table:
            yield CustomerTable(table)


class CustomerTable:
    """Numbers in national form are those of the row's country; who gave no address expects no email."""

    def __init__(self, table):
        self.columns = table.columns
        self.table = table

    def rows(self, wanted):
        """Read all rows once."""
        from cpaas_provider.api import normalise_msisdn
        from cpaas_provider.sources.rows import InvalidRow, Row

        for row in self.table.rows([*wanted, "country"]):
            if isinstance(row, InvalidRow):
                yield row
                continue
            *values, country = row.values
            if wanted[0] == "email" and not values[0]:
                continue
            if wanted[0] == "phone" and country:
                try:
                    values[0] = "+" + normalise_msisdn(values[0] or "", country.upper())
                except ValueError as error:
                    yield InvalidRow(row.number, f"phone {error}")
                    continue
            yield Row(row.number, tuple(values))


# [end howto_custom_source]


def run_folder(params, run_id):
    """Return the folder of a run's outcomes."""
    return f"{shared_folder(params)}/{re.sub(r'[^A-Za-z0-9_.-]+', '_', run_id)}"


def shared_folder(params):
    """Return the folder of what runs hand on to the next run."""
    home = Path(os.environ.get("AIRFLOW_HOME") or Path.home() / "airflow")
    return params["folder"] or f"file://{home}/cpaas_campaign"


@dag(
    schedule=None,
    catchup=False,
    # Runs share the list of contact rows.
    max_active_runs=1,
    params=PARAMS,
    user_defined_macros={"run_folder": run_folder},
    default_args={
        "retries": 2,
        "retry_delay": timedelta(seconds=30),
        "execution_timeout": timedelta(hours=2),
    },
    tags=["cpaas", "example"],
    doc_md="""
    ### Customer campaign
    Reads customers from a CSV, tries the campaign dry, keeps the contact list, sends an SMS and an email to each, waits
    for them to arrive, and sums up what was sent, what it cost and how many were reached.

    * **Nothing is lost.** Each send leaves a file in the run's folder with a line for every row: sent, rejected,
      duplicate, bad and why, do not disturb ...
    * **Nobody gets a message twice**, also when a task is killed and tried again or cleared. Where nobody can know
      whether a message went out, it is not sent again; the task fails when everything else is done, and its error says
      how to decide.
    * **Guards** stand at the top of the file: how many, how much, how many failures. A task that a guard stopped says
      who was not reached; cleared with a raised limit it sends to those.
    * **Arrival** is known where the connection has a `callback_url`: `sms_delivered` and `email_delivered` then wait
      until it is known of everybody, for six hours at most, and leave a file each with who was reached and why not.
      Without it they are skipped, and the log of `reports_come` says what to set.
    * **Numbers and addresses** are in those files only; XComs and logs hold counts, ids and paths. `check` leaves two
      rendered texts in its XCom `preview`, because that is what it is for.
    """,
)
def customer_campaign():
    """Describe the order of the steps."""
    # [start howto_campaign]
    campaign = {
        "cpaas_conn_id": "{{ params.cpaas_conn_id }}",
        "results_path": "{{ run_folder(params, run_id) }}/{{ task.task_id }}.jsonl",
        "substitution_defaults": {"name": "customer"},
        **GUARDS,
    }
    sms = {"content": "{{ params.sms_text }}", "sender_id": "{{ params.sms_sender_id }}", **campaign}
    check = SmsCampaignOperator(
        task_id="check", source=Customers("{{ params.csv }}"), dry_run=True, preview_count=2, price_per_page=4, **sms
    )
    send_sms = SmsCampaignOperator(
        task_id="send_sms",
        source=Customers("{{ params.csv }}"),
        test_recipients=COLLEAGUES,
        skip_dnd=True,  # each number is looked up, which costs money, once in 30 days
        **sms,
    )
    send_email = EmailCampaignOperator(
        task_id="send_email",
        source=Customers("{{ params.csv }}"),
        content="{{ params.email_text }}",
        subject="{{ params.email_subject }}",
        sender_id="{{ params.email_sender_id }}",
        test_recipients=COLLEAGUES,
        **campaign,
    )
    delivered = [wait_for_delivery(send) for send in (send_sms, send_email)]
    reports_come() >> delivered
    check >> upsert_contacts() >> [send_sms, send_email]
    [send_sms, send_email, *delivered] >> summarise()
    # [end howto_campaign]


# [start howto_wait_for_delivery]
def wait_for_delivery(send):
    """Describe the wait for what one task sent; the triggerer waits, so that no worker has to."""
    return DeliverySensor(
        task_id=send.task_id.removeprefix("send_") + "_delivered",
        send_result=send.output,
        results_path="{{ run_folder(params, run_id) }}/{{ task.task_id }}.jsonl",
        deferrable=True,
        timeout=DELIVERED_WITHIN,
        # Time over is no failure by itself: the summary judges by what arrived until then.
        soft_fail=True,
        execution_timeout=None,
    )


# [end howto_wait_for_delivery]


@task.short_circuit(ignore_downstream_trigger_rules=False)
def reports_come():
    """Go on to wait for delivery only where the service is told whom to report to."""
    from cpaas_provider.hooks.cpaas import CpaasHook

    conn_id = get_current_context()["params"]["cpaas_conn_id"]
    if CpaasHook(conn_id).get_connection_settings().callback_url:
        return True
    log.warning(
        "Connection %r has no callback_url, so nothing is reported of what was sent, and nothing is waited for. Set it "
        "to the public address of the receiver, e.g. https://airflow.example.com/cpaas.",
        conn_id,
    )
    return False


@task(retry_policy=CpaasRetryPolicy())
async def upsert_contacts():
    """Bring the contact list up to date: change the rows we know, create the others, and remember their ids.

    The service lists no rows, so the ids are kept here, each as soon as it is confirmed. Where nobody can know whether
    a row was created, it is not created again: the file says ``unknown`` until somebody takes the line out.
    """
    from campaign_steps.contacts import put_row, resolve_columns
    from campaign_steps.ledger import Ledger
    from campaign_steps.workers import for_each
    from cpaas_provider.hooks.cpaas import CpaasHook

    context = get_current_context()
    params, run_id = context["params"], context["run_id"]
    customers = checked_customers(params, run_folder(params, run_id))
    ledger = Ledger(ObjectStoragePath(shared_folder(params)) / "contact_rows.jsonl")
    rows = {entry["phone"]: entry for entry in ledger.entries()}

    async with await CpaasHook(params["cpaas_conn_id"]).get_async_conn() as client:
        columns = resolve_columns(await client.get_contact_table(), params["columns"])

        async def upsert(customer: dict[str, Any]) -> None:
            phone = customer["phone"]
            row_id = rows.get(phone, {}).get("row_id")
            rows[phone] = {"phone": phone, "run_id": run_id, **await put_row(client, row_id, customer, columns)}
            ledger.add(rows[phone])

        def to_do(customer: dict[str, Any]) -> bool:
            known = rows.get(customer["phone"], {})
            perhaps_created = known.get("outcome") == "unknown" and not known["row_id"]
            return known.get("run_id") != run_id and not perhaps_created

        with ledger:
            new = list(filter(to_do, customers))
            await for_each(new, upsert, workers=client.settings.max_concurrency, doing="Contacts brought up to date")

    outcomes = [rows[customer["phone"]]["outcome"] for customer in customers]
    return {outcome: outcomes.count(outcome) for outcome in ("created", "updated", "rejected", "unknown")}


def checked_customers(params, folder):
    """Return the customers that ``check`` found sound, once each, with their numbers as the service writes them."""
    with ObjectStoragePath(f"{folder}/check.jsonl").open() as lines:
        checked = map(json.loads, lines)
        phones = {line["row"]: line["recipient"] for line in checked if line["outcome"] == "not_sent"}
    fields = ["phone", *(field for field in params["columns"].values() if field != "phone")]
    with Customers(params["csv"]).open() as table:
        return [
            {**dict(zip(fields, row.values, strict=True)), "phone": phones[row.number]}
            for row in table.rows(fields)
            if row.number in phones
        ]


@task(trigger_rule="all_done", retries=0)
def summarise():
    """Say what came of it, also when a step failed; the run succeeds only where every step did."""
    ti = get_current_context()["ti"]
    steps = ["check", "upsert_contacts", "send_sms", "send_email"]
    waits = ["sms_delivered", "email_delivered"] if ti.xcom_pull(task_ids="reports_come") else []
    results = {step: ti.xcom_pull(task_ids=step) for step in [*steps, *waits]}
    # What failed, and a wait whose time was over, say under another key how far they came.
    told = {step: results[step] or ti.xcom_pull(task_ids=step, key="report") or {} for step in results}
    contacts, sms, email = told["upsert_contacts"], told["send_sms"], told["send_email"]
    balances = [report["balance"] for report in (sms, email) if report.get("balance") is not None]
    figures = {
        "check": told["check"],
        "contacts": contacts,
        "sms": sms,
        "email": email,
        **{wait: told[wait] for wait in waits},
        "charge": round(sum(report.get("charge") or 0 for report in (sms, email)), 4),
        "balance": min(balances, default=None),
    }
    ti.xcom_push("summary", figures)
    for step, counts in figures.items():
        log.info("%s: %s", step, counts)
    states = ti.get_task_states(ti.dag_id, run_ids=[ti.run_id])[ti.run_id]
    failed = [step for step in states if states[step] == "failed" or (step in told and not told[step])]
    if failed:
        raise AirflowFailException(f"The campaign did not go well; the logs say why: {', '.join(failed)}.")
    if contacts["rejected"] or contacts["unknown"]:
        raise AirflowFailException("Not all contacts could be brought up to date; contact_rows.jsonl says which.")
    if few := [wait for wait in waits if told[wait]["delivered"] < MIN_DELIVERED * told[wait]["expected"]]:
        raise AirflowFailException(f"Too few were reached: {', '.join(few)}. Their outcome files say who, and why not.")


customer_campaign()
