"""Every example DAG is read as Airflow reads it, and run for real against the sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "example_dags"


@pytest.fixture(scope="module")
def bag(airflow_db):
    from airflow.dag_processing.dagbag import BundleDagBag, sync_bag_to_db
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils.session import create_session

    bag = BundleDagBag(dag_folder=EXAMPLES, bundle_path=EXAMPLES, bundle_name="examples")
    assert bag.import_errors == {}
    with create_session() as session:
        session.merge(DagBundleModel(name="examples"))
    sync_bag_to_db(bag, "examples", None)
    return bag


def test_campaign(bag, cpaas_default, tmp_path):
    run = bag.dags["customer_campaign"].test(run_conf={"folder": f"file://{tmp_path}"})
    print(run.state, cpaas_default.counters())
    for ti in run.get_task_instances():
        print(ti.task_id, ti.state)
