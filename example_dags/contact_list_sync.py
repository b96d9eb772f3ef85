"""Keep a few rows of the contact list as they stand here: create, change, delete."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import Param, Variable, dag, get_current_context, task

from cpaas_provider.operators.contacts import DeleteContactRowOperator, UpsertContactRowOperator

# Where the row ids are kept: {key: row id}. Ids only, nothing personal.
ROW_IDS = "cpaas_contact_rows"

PEOPLE = {
    "front-desk": {"Name": "Ada Okafor", "Phone": "+234 803 555 0101", "Email": "ada@example.com", "Points": 120},
    "night-shift": {"Name": "Chidi Eze", "Phone": "+234 806 555 0102", "Email": "chidi@example.org", "Points": 40},
    "driver": {"Name": "Zoë D'Souza", "Phone": "+44 7700 900103", "Email": "zoe@example.net", "Points": None},
}
KEYS = list(PEOPLE)


def row_ids():
    """Return the ids of the rows we made so far, by key."""
    return Variable.get(ROW_IDS, default={}, deserialize_json=True)


def row_id_at(map_index):
    """Return the id of the row of a mapped task, or nothing where there is none yet."""
    return row_ids().get(KEYS[map_index], "")


@dag(
    schedule=None,
    catchup=False,
    max_active_runs=1,
    params={"cpaas_conn_id": Param("cpaas_default", type="string", description="The connection to the service.")},
    default_args={"retries": 2, "retry_delay": timedelta(seconds=10)},
    user_defined_macros={"row_id_at": row_id_at},
    tags=["cpaas", "example"],
    doc_md="""
    ### Contact list sync
    For a short list kept in a file: each person is one mapped task, which changes the row if there is one and creates
    it otherwise; the rows of people who are no longer listed are deleted. The service lists no rows, so their ids are
    remembered in a Variable. For thousands of people, see `customer_campaign`.
    """,
)
def contact_list_sync():
    """Describe the order of the steps."""
    # [start howto_upsert_contacts]
    upsert = UpsertContactRowOperator.partial(
        task_id="upsert",
        cpaas_conn_id="{{ params.cpaas_conn_id }}",
        row_id="{{ row_id_at(ti.map_index) }}",
    ).expand(columns=list(PEOPLE.values()))
    gone = remember()
    delete = DeleteContactRowOperator.partial(
        task_id="delete", cpaas_conn_id="{{ params.cpaas_conn_id }}", skip_if_missing=True
    ).expand(row_id=gone)
    upsert >> gone
    delete >> forget(gone)
    # [end howto_upsert_contacts]


@task(trigger_rule="all_done")
def remember():
    """Keep the ids of the rows that are there, also when another one failed; return those nobody wants any more."""
    ti = get_current_context()["ti"]
    results = ti.xcom_pull(task_ids="upsert", map_indexes=list(range(len(KEYS))))
    known = row_ids()
    known.update({key: result["row_id"] for key, result in zip(KEYS, results, strict=True) if result})
    Variable.set(ROW_IDS, known, serialize_json=True)
    if None in results:
        raise RuntimeError(f"{results.count(None)} of {len(KEYS)} rows were not written; their tasks say why.")
    return [row_id for key, row_id in known.items() if key not in PEOPLE]


@task(trigger_rule="none_failed")
def forget(gone):
    """Forget the ids of the rows that were deleted."""
    kept = {key: row_id for key, row_id in row_ids().items() if row_id not in gone}
    Variable.set(ROW_IDS, kept, serialize_json=True)
    return {"rows": len(kept), "deleted": len(gone)}


contact_list_sync()
