"""A campaign from a CSV: look the numbers up, keep the contact list, send personal SMS and emails, sum it up.

Copy this file and the folder ``campaign_steps`` beside it.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import ObjectStoragePath, Param, dag, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException

from cpaas_provider.hooks.retry_policy import CpaasRetryPolicy

if TYPE_CHECKING:
    from cpaas_provider.api import CpaasClient

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
SMS_TEXT = "Hello {first_name}, calls to your family are free this weekend. Enjoy! Reply STOP to hear no more of us."
EMAIL_TEXT = """Dear {name},

calls to your family are free this weekend, from Friday 18:00 to Monday 06:00.

To hear no more of us, just answer with STOP.
"""

PARAMS = {
    "cpaas_conn_id": Param("cpaas_default", type="string", description="The connection to the service."),
    "csv": Param(
        str(Path(__file__).parent / "data" / "customers.csv"),
        type="string",
        description="The customers: a path or a URL that Airflow's object storage can read. It needs a column 'phone'.",
    ),
    "folder": Param(
        None,
        type=["null", "string"],
        description="Where lists and outcomes are kept: a folder all workers share. Left out: below AIRFLOW_HOME.",
    ),
    "limit": Param(
        None,
        type=["null", "integer"],
        minimum=1,
        description="Take this many customers at most. Begin with 1, and look how the texts came out.",
    ),
    "columns": Param(CONTACT_COLUMNS, type="object", description="Column of the contact list: field of the CSV."),
    "lookup_days": Param(30, type="integer", minimum=0, description="Days a look-up stays good; each one costs money."),
    "sms_sender_id": Param("Example", type="string", maxLength=11, description="What the phone shows as sender."),
    "sms_text": Param(SMS_TEXT, type="string", description="The SMS; {first_name}, {name} or any field of the CSV."),
    "email_sender_id": Param("news@example.com", type="string", description="The sender's address."),
    "email_subject": Param("A free weekend for {first_name}", type="string", description="Subject of the email."),
    "email_text": Param(EMAIL_TEXT, type="string", description="The email, with the same placeholders."),
    "max_rejected": Param(
        0, type="integer", minimum=0, description="Recipients the service may refuse before that fails the run."
    ),
}


@dag(
    schedule=None,
    catchup=False,
    # Runs share the list of contact rows and the look-ups.
    max_active_runs=1,
    params=PARAMS,
    default_args={
        "retries": 2,
        "retry_delay": timedelta(seconds=30),
        "retry_policy": CpaasRetryPolicy(),
        "execution_timeout": timedelta(hours=2),
    },
    tags=["cpaas", "example"],
    doc_md="""
    ### Customer campaign
    Reads customers from a CSV, leaves out who must not be disturbed, keeps the contact list, sends an SMS and an email
    to each, and sums up what was sent and what it cost.

    * **Nothing is lost.** Every row of the CSV is a customer, a bad row, a duplicate, or beyond the limit; the files
      in the run's folder say which, and why.
    * **Nobody gets a message twice**, also when a task is killed and tried again: before a request leaves, its intent
      is stored, and after the answer, its result. Where nobody can know whether a message went out, it is not sent
      again; the task fails when everything else is done, and says how many are in doubt. Airflow 3.3 keeps that
      knowledge when a task is cleared; later versions may forget it, and a cleared task sends again.
    * **Numbers, addresses and texts** are in those files only: XComs and logs hold paths, ids and counts.

    Begin with `limit` 1: whether placeholders such as `{first_name}` are filled is the service's affair.
    """,
)
def customer_campaign():
    """Describe the order of the steps."""
    read_customers() >> look_up() >> upsert_contacts() >> [send_sms(), send_email()] >> summarise()


@task
def read_customers():
    """Sort the rows of the CSV into customers, bad rows and duplicates."""
    from campaign_steps.customers import sort_rows
    from campaign_steps.ledger import write_lines
    from cpaas_provider.hooks.cpaas import CpaasHook

    params = get_current_context()["params"]
    region = CpaasHook(params["cpaas_conn_id"]).read_connection().options.get("default_region")
    rows: dict[str, list[dict[str, Any]]] = {"customers": [], "bad_rows": [], "duplicates": [], "beyond_limit": []}
    with ObjectStoragePath(params["csv"]).open("r", encoding="utf-8-sig", newline="") as lines:
        read = 0
        for read, (kind, row) in enumerate(sort_rows(lines, region, params["limit"]), start=1):  # noqa: B007
            rows[kind].append(row)
    for kind, found in rows.items():
        write_lines(run_folder() / f"{kind}.jsonl", found)
    counts = {kind: len(found) for kind, found in rows.items()}
    if sum(counts.values()) != read:
        raise AirflowFailException(f"{read} rows were read, but {counts} make {sum(counts.values())}.")
    bad = by_reason((row["reason"], row["row"]) for row in rows["bad_rows"])
    left_out = by_reason(
        (f"{field} {reason}", row["row"]) for row in rows["customers"] for field, reason in row["left_out"].items()
    )
    return {"read": read, **counts, "bad_rows": bad, "fields_left_out": left_out}


@task
async def look_up():
    """Look every number up once, and go on without those that must not be disturbed."""
    from campaign_steps.ledger import Ledger, read_lines, write_lines
    from campaign_steps.workers import for_each
    from cpaas_provider.api import CpaasAuthenticationError, CpaasInsufficientBalanceError, CpaasRejectedError
    from cpaas_provider.hooks.cpaas import CpaasHook

    context = get_current_context()
    params, run_id = context["params"], context["run_id"]
    customers = read_lines(run_folder() / "customers.jsonl")
    ledger = Ledger(shared_folder() / "lookups.jsonl")
    stale = datetime.now(UTC) - timedelta(days=params["lookup_days"])
    answers = {
        entry["phone"]: entry
        for entry in ledger.entries()
        if entry["run_id"] == run_id or ("dnd" in entry and datetime.fromisoformat(entry["at"]) > stale)
    }

    async with await CpaasHook(params["cpaas_conn_id"]).get_async_conn() as client:

        async def ask(customer: dict[str, Any]) -> None:
            phone = customer["phone"]
            try:
                dnd = (await client.lookup_phone(f"+{phone}")).dnd
                found = {"error": "the service does not say whether"} if dnd is None else {"dnd": dnd}
            except (CpaasAuthenticationError, CpaasInsufficientBalanceError):
                raise
            except CpaasRejectedError as error:
                found = {"error": str(error)}
            answers[phone] = {"phone": phone, **found, "run_id": run_id, "at": datetime.now(UTC).isoformat()}
            ledger.add(answers[phone])

        with ledger:
            new = [customer for customer in customers if customer["phone"] not in answers]
            await for_each(new, ask, workers=client.settings.max_concurrency, doing="Numbers looked up")

    mine = [answers[customer["phone"]] for customer in customers]
    reachable = [customer for customer, answer in zip(customers, mine, strict=True) if answer.get("dnd") is False]
    write_lines(run_folder() / "reachable.jsonl", reachable)
    return {
        "looked_up": sum(answer["run_id"] == run_id and "dnd" in answer for answer in mine),
        "dnd_skipped": sum(bool(answer.get("dnd")) for answer in mine),
        "lookup_failed": sum("error" in answer for answer in mine),
        "reachable": len(reachable),
    }


@task
async def upsert_contacts():
    """Bring the contact list up to date: change the rows we know, create the others, and remember their ids.

    The service lists no rows, so the ids are kept here, each as soon as it is confirmed. Where nobody can know whether
    a row was created, it is not created again: the file says ``unknown`` until somebody takes the line out.
    """
    from campaign_steps.contacts import put_row, resolve_columns
    from campaign_steps.ledger import Ledger, read_lines
    from campaign_steps.workers import for_each
    from cpaas_provider.hooks.cpaas import CpaasHook

    context = get_current_context()
    params, run_id = context["params"], context["run_id"]
    customers = read_lines(run_folder() / "reachable.jsonl")
    ledger = Ledger(shared_folder() / "contact_rows.jsonl")
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
    left_out = by_reason(
        (f"{field} {reason}", customer["row"])
        for customer in customers
        for field, reason in rows[customer["phone"]].get("left_out", {}).items()
    )
    counts = {outcome: outcomes.count(outcome) for outcome in ("created", "updated", "rejected", "unknown")}
    return {**counts, "fields_left_out": left_out}


@task
def send_sms():
    """Send everybody their SMS."""
    from campaign_steps.customers import words_for

    params = get_current_context()["params"]

    def send(client: CpaasClient, people: list[dict[str, Any]]) -> Any:
        return client.send_sms(
            # With a plus a number reads the same everywhere; bare digits might be taken for a national one.
            [f"+{person['phone']}" for person in people],
            params["sms_sender_id"],
            params["sms_text"],
            personalisation=[
                {"to": f"+{person['phone']}", "substitutions": words_for(params["sms_text"], person)}
                for person in people
            ],
        )

    send_once("phone", send)


@task
def send_email():
    """Send an email to everybody who gave an address."""
    from campaign_steps.customers import words_for

    params = get_current_context()["params"]
    text = params["email_subject"] + params["email_text"]

    def send(client: CpaasClient, people: list[dict[str, Any]]) -> Any:
        return client.send_email(
            [person["email"] for person in people],
            params["email_sender_id"],
            params["email_text"],
            subject=params["email_subject"],
            personalisation=[{"to": person["email"], "substitutions": words_for(text, person)} for person in people],
        )

    send_once("email", send)


@task(trigger_rule="all_done", retries=0)
def summarise():
    """Say what came of it, also when a step failed; the run succeeds only where every step did what it should."""
    from campaign_steps.summary import problems, summary, table

    ti = get_current_context()["ti"]
    figures = summary(
        read=ti.xcom_pull(task_ids="read_customers"),
        looked_up=ti.xcom_pull(task_ids="look_up"),
        contacts=ti.xcom_pull(task_ids="upsert_contacts"),
        sms=ti.xcom_pull(task_ids="send_sms", key="figures"),
        email=ti.xcom_pull(task_ids="send_email", key="figures"),
    )
    ti.xcom_push("summary", figures)
    log.info("Campaign summary\n%s\nLists and outcomes: %s", table(figures), run_folder())
    if wrong := problems(figures, get_current_context()["params"]["max_rejected"]):
        raise AirflowFailException("The campaign did not go well. " + " ".join(wrong))


def send_once(field: str, send: Callable[[CpaasClient, list[dict[str, Any]]], Any]) -> None:
    """Send to everybody with a number or address, in packs, and to nobody twice over all tries of this task."""
    from campaign_steps.ledger import read_lines, write_lines
    from campaign_steps.packs import Journal, RecipientsChangedError, figures, outcomes, send_in_packs
    from cpaas_provider.hooks.cpaas import CpaasHook

    context = get_current_context()
    hook = CpaasHook(context["params"]["cpaas_conn_id"])
    # On a staging connection: everybody else would be refused.
    allowed = hook.get_conn().settings.allowed
    addressed = [person for person in read_lines(run_folder() / "reachable.jsonl") if person[field]]
    people = [person for person in addressed if allowed is None or allowed.permits(person[field])]
    recipients = [person[field] for person in people]
    try:
        journal = Journal(context["task_state_store"], recipients, hook.read_connection().recipients_per_request)
    except RecipientsChangedError as error:
        raise AirflowFailException(str(error)) from None
    try:
        with hook.get_conn() as client:
            send_in_packs(journal, lambda pack: send(client, [people[place] for place in pack]))
    finally:
        # However this try ends, the next one and the summary are to know.
        count = {**figures(journal), "not_allowed": len(addressed) - len(people)}
        context["ti"].xcom_push("figures", count)
        file = run_folder() / f"{context['ti'].task_id}_outcomes.jsonl"
        write_lines(file, outcomes(journal))
    if count["unknown"] or count["rejected"] > context["params"]["max_rejected"]:
        doubt = " Nobody can know whether the last went out, so they were not sent again." if count["unknown"] else ""
        raise AirflowFailException(
            f"{count['sent']} sent, {count['rejected']} rejected, {count['unknown']} in doubt.{doubt} "
            f"{file} says who they are."
        )


def by_reason(found: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Count what was found by its reason, and log it with the first row numbers."""
    rows: dict[str, list[int]] = {}
    for reason, row in found:
        rows.setdefault(reason, []).append(row)
    for reason, numbers in rows.items():
        more = f" and {len(numbers) - 10} more" if len(numbers) > 10 else ""
        log.info("%d rows: %s (%s%s)", len(numbers), reason, ", ".join(map(str, numbers[:10])), more)
    return {reason: len(numbers) for reason, numbers in rows.items()}


def shared_folder() -> ObjectStoragePath:
    """Return the folder of what runs hand on to the next run."""
    folder = get_current_context()["params"]["folder"]
    home = Path(os.environ.get("AIRFLOW_HOME") or Path.home() / "airflow")
    path = ObjectStoragePath(folder or f"file://{home}/cpaas_campaign")
    path.mkdir(parents=True, exist_ok=True)
    return path


def run_folder() -> ObjectStoragePath:
    """Return the folder of this run's lists."""
    path = shared_folder() / re.sub(r"[^\w.-]+", "_", get_current_context()["run_id"])
    path.mkdir(parents=True, exist_ok=True)
    return path


customer_campaign()
