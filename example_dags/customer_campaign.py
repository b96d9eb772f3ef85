"""A campaign from a CSV: dry run, contact list, personalised SMS and emails, delivery tracking, summary."""

from __future__ import annotations

import logging
import os
import re
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from airflow.sdk import Param, dag, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException

from cpaas_provider.operators import EmailCampaignOperator, SmsCampaignOperator, SyncContactsOperator
from cpaas_provider.sensors import DeliverySensor
from cpaas_provider.sources import CsvSource

log = logging.getLogger(__name__)

CONTACT_COLUMNS = {
    "Name": "name",
    "Phone": "phone",
    "Email": "email",
    "Birthday": "birthday",
    "Plan": "plan",
    "Points": {"source": "points", "thousands": ","},
    "Tags": {"source": "tags", "separator": ";"},
}
SMS_TEXT = "Hello {name}, calls to your family are free this weekend. Enjoy! Reply STOP to unsubscribe."
EMAIL_TEXT = """Dear {name},

calls to your family are free this weekend, from Friday 18:00 to Monday 06:00.

To unsubscribe, reply with STOP.
"""

# The campaign sends to these test recipients first. If that fails, it sends to no other recipient. On a staging
# connection, list them in its allowed_recipients.
COLLEAGUES = [{"phone": "+234 803 555 0100", "email": "ada.colleague@example.com", "name": "Ada"}]

# [start howto_campaign_guards]
GUARDS = {
    "max_recipients": 5_000,
    "max_charge": 20_000,  # for each of the two campaigns, in the account's currency
    "max_failure_ratio": 0.05,  # invalid rows and rejected recipients together; 0 tolerates none
}
# [end howto_campaign_guards]

# Some phones are off for days. After this time the summary uses the delivery reports received so far.
DELIVERED_WITHIN = timedelta(hours=6)
MIN_DELIVERED = 0.7  # share of the accepted recipients; a smaller share fails the run

PARAMS = {
    "cpaas_conn_id": Param("cpaas_default", type="string", description="The connection to the service."),
    "csv": Param(
        str(Path(__file__).parent / "data" / "customers.csv"),
        type="string",
        description="The customers: a path or URL for Airflow's object storage, with the columns of CONTACT_COLUMNS.",
    ),
    "folder": Param(
        None,
        type=["null", "string"],
        description="Folder of the results files, shared by all workers. Default: a folder in AIRFLOW_HOME.",
    ),
    "sms_sender_id": Param("Example", type="string", maxLength=11, description="The sender that the phone shows."),
    "sms_text": Param(SMS_TEXT, type="string", description="The SMS; placeholders are columns of the CSV."),
    "email_sender_id": Param("news@example.com", type="string", description="The sender's address."),
    "email_subject": Param("A free weekend for {name}", type="string", description="Subject of the email."),
    "email_text": Param(EMAIL_TEXT, type="string", description="The email, with the same placeholders."),
}


# [start howto_custom_source]
class Customers(CsvSource):
    """A CSV in which national numbers belong to the row's country. It is streamed."""

    needs_email = False

    @contextmanager
    def open(self):
        """Open the file for one pass over its rows."""
        with super().open() as table:
            yield CustomerTable(table, self.needs_email)


class CustomersWithEmail(Customers):
    """Customers without an address are no rows, rather than invalid ones."""

    needs_email = True


class CustomerTable:
    """The rows of the CSV, by the two rules above."""

    def __init__(self, table, needs_email):
        self.columns = table.columns
        self.table = table
        self.needs_email = needs_email

    @property
    def absent(self):
        """Return the columns that no row had."""
        return self.table.absent

    def rows(self, wanted):
        """Yield all rows once."""
        from cpaas_provider.api import normalise_msisdn
        from cpaas_provider.sources.base import InvalidRow, Row

        for row in self.table.rows([*wanted, "country"]):
            if isinstance(row, InvalidRow):
                yield row
                continue
            *values, country = row.values
            if self.needs_email and not values[wanted.index("email")]:
                continue
            if "phone" in wanted and country:
                place = wanted.index("phone")
                try:
                    values[place] = "+" + normalise_msisdn(values[place] or "", country.upper())
                except ValueError as error:
                    yield InvalidRow(row.number, f"phone {error}")
                    continue
            yield Row(row.number, tuple(values))


# [end howto_custom_source]


def run_folder(params, run_id):
    """Return the folder of a run's results files."""
    home = Path(os.environ.get("AIRFLOW_HOME") or Path.home() / "airflow")
    folder = params["folder"] or f"file://{home}/cpaas_campaign"
    return f"{folder}/{re.sub(r'[^A-Za-z0-9_.-]+', '_', run_id)}"


@dag(
    schedule=None,
    catchup=False,
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
    Reads customers from a CSV and checks them in a dry run. Synchronises the contact list. Sends an SMS and an email to
    each customer. Waits for delivery, and sums up the messages sent, their cost and their delivery.

    * **Every row has an outcome.** Each campaign writes a results file in the run's folder, with a line for every row:
      sent, rejected, duplicate, invalid with its reason, DND and so on.
    * **The contact list** gets only the rows that changed since the last run, and in them only the changed cells.
    * **Every recipient gets a message at most once**, also if a task is killed, retried or cleared. If the outcome of a
      request is unknown, it is not sent again. The task then fails after all other recipients are sent to. Its error
      shows how to resolve the request.
    * **Guards** at the top of the file limit recipients, cost and failures. If a guard stops a task, its results file
      names the recipients not sent to. Raise the limit and clear the task: it sends to these.
    * **Delivery** is tracked if the connection has a `callback_url`. `sms_delivered` and `email_delivered` then wait
      until every recipient has a final status, for six hours at most. Each writes a results file with the status of
      every recipient. Without `callback_url` they are skipped, and the log of `has_delivery_reports` names the setting.
    * **Numbers and addresses** are in those files only. XComs and logs contain counts, ids and paths. The XCom
      `preview` of `check` contains two rendered texts.
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
    sync_contacts = SyncContactsOperator(
        task_id="sync_contacts",
        source=Customers("{{ params.csv }}"),
        key="customer_id",
        columns=CONTACT_COLUMNS,
        max_failure_ratio=0.15,  # rows that do not fit the contact list are left out, and the results file names them
        cpaas_conn_id="{{ params.cpaas_conn_id }}",
        results_path="{{ run_folder(params, run_id) }}/{{ task.task_id }}.jsonl",
    )
    send_sms = SmsCampaignOperator(
        task_id="send_sms",
        source=Customers("{{ params.csv }}"),
        test_recipients=COLLEAGUES,
        skip_dnd=True,  # looks up each number, at a cost, once in 30 days
        **sms,
    )
    send_email = EmailCampaignOperator(
        task_id="send_email",
        source=CustomersWithEmail("{{ params.csv }}"),
        content="{{ params.email_text }}",
        subject="{{ params.email_subject }}",
        sender_id="{{ params.email_sender_id }}",
        test_recipients=COLLEAGUES,
        **campaign,
    )
    delivered = [wait_for_delivery(send) for send in (send_sms, send_email)]
    has_delivery_reports() >> delivered
    check >> sync_contacts >> [send_sms, send_email]
    [send_sms, send_email, *delivered] >> summarise()
    # [end howto_campaign]


# [start howto_wait_for_delivery]
def wait_for_delivery(send):
    """Return a sensor for the messages of one task. It waits on the triggerer and holds no worker slot."""
    return DeliverySensor(
        task_id=send.task_id.removeprefix("send_") + "_delivered",
        send_result=send.output,
        results_path="{{ run_folder(params, run_id) }}/{{ task.task_id }}.jsonl",
        deferrable=True,
        timeout=DELIVERED_WITHIN,
        # A timeout does not fail the run. The summary uses the reports received until then.
        soft_fail=True,
        execution_timeout=None,
    )


# [end howto_wait_for_delivery]


@task.short_circuit(ignore_downstream_trigger_rules=False)
def has_delivery_reports():
    """Continue with the delivery sensors only if the service has a URL for its reports."""
    from cpaas_provider.hooks.cpaas import CpaasHook

    conn_id = get_current_context()["params"]["cpaas_conn_id"]
    if CpaasHook(conn_id).get_connection_settings().callback_url:
        return True
    log.warning(
        "Connection %r has no callback_url, so the service sends no delivery reports. The sensors are skipped. "
        "Set callback_url to the public address of the receiver, e.g. https://airflow.example.com/cpaas.",
        conn_id,
    )
    return False


@task(trigger_rule="all_done", retries=0)
def summarise():
    """Log and return all counts, even if a step failed. The run succeeds only if every step did."""
    ti = get_current_context()["ti"]
    steps = ["check", "sync_contacts", "send_sms", "send_email"]
    waits = ["sms_delivered", "email_delivered"] if ti.xcom_pull(task_ids="has_delivery_reports") else []
    results = {step: ti.xcom_pull(task_ids=step) for step in [*steps, *waits]}
    # A failed campaign, or a sensor after its timeout, has its counts under the key "report".
    reports = {step: results[step] or ti.xcom_pull(task_ids=step, key="report") or {} for step in results}
    contacts, sms, email = reports["sync_contacts"], reports["send_sms"], reports["send_email"]
    balances = [report["balance"] for report in (sms, email) if report.get("balance") is not None]
    figures = {
        "check": reports["check"],
        "contacts": contacts,
        "sms": sms,
        "email": email,
        **{wait: reports[wait] for wait in waits},
        "charge": round(sum(report.get("charge") or 0 for report in (sms, email)), 4),
        "balance": min(balances, default=None),
    }
    ti.xcom_push("summary", figures)
    for step, counts in figures.items():
        log.info("%s: %s", step, counts)
    states = ti.get_task_states(ti.dag_id, run_ids=[ti.run_id])[ti.run_id]
    failed = [step for step in states if states[step] == "failed" or (step in reports and not reports[step])]
    if failed:
        raise AirflowFailException(f"Failed tasks: {', '.join(failed)}. Their logs have the reasons.")
    if few := [wait for wait in waits if reports[wait]["delivered"] < MIN_DELIVERED * reports[wait]["expected"]]:
        raise AirflowFailException(
            f"Fewer than {MIN_DELIVERED:.0%} delivered: {', '.join(few)}. See their results files."
        )


customer_campaign()
