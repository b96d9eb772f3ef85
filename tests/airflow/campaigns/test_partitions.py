"""A mapped campaign whose number of partitions is changed within a run, without a key."""

from __future__ import annotations

from collections import Counter

import pytest
from airflow.models.dagbag import DBDagBag
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from sqlalchemy import select

from cpaas_provider.operators.base_campaign import partitions
from cpaas_provider.operators.sms import SmsCampaignOperator
from tests.airflow.harness.campaigns import TEXT, digits, reached, requests, rows
from tests.airflow.harness.stage import Stage
from tests.airflow.harness.tries import Run, new_dag


@pytest.fixture
def sent_in_two(stage: Stage) -> Run:
    """A campaign whose two partitions were sent."""
    with new_dag() as dag:
        mapped(2)
    run = Run(stage, dag)
    assert [run.once(map_index=index).state for index in range(2)] == ["success"] * 2
    return run


def mapped(count: int) -> None:
    SmsCampaignOperator.partial(task_id="campaign", source=rows(20), content=TEXT).expand(partition=partitions(count))


def edited_to(count: int, run: Run) -> None:
    """Change the number in the DAG file; the clear that follows adds the task instances it takes."""
    with type(run.dag)(run.dag.dag_id, schedule=None, default_args=run.dag.default_args) as dag:
        mapped(count)
    run.dag = dag
    with create_session() as session:
        mine = TaskInstance.dag_id == dag.dag_id, TaskInstance.run_id == run.run_id
        first = session.scalars(select(TaskInstance).where(*mine, TaskInstance.map_index == 0)).one()
        scheduled = DBDagBag().get_latest_version_of_dag(dag.dag_id, session=session)
        assert scheduled is not None
        task = scheduled.get_task("campaign")
        for index in range(2, count):
            added = TaskInstance(task, dag_version_id=first.dag_version_id, run_id=run.run_id, map_index=index)
            added.max_tries = first.max_tries
            session.add(added)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0)])
def test_after_a_clear_all_partitions_of_another_number_are_refused(
    stage: Stage, sent_in_two: Run, order: tuple[int, ...]
) -> None:
    before = requests(stage)
    for index in range(2):
        sent_in_two.clear(map_index=index)
    edited_to(4, sent_in_two)
    tries = {index: sent_in_two.once(map_index=index) for index in order}
    assert [tries[index].state for index in range(4)] == ["failed"] * 4
    assert "partition 1 of 2, and this one is partition 1 of 4" in tries[1].error
    assert "began with 2 partitions, and this one has 4" in tries[3].error
    assert (requests(stage), reached(stage)) == (before, Counter(digits(20)))


def test_changed_back_it_goes_on(stage: Stage, sent_in_two: Run) -> None:
    for index in range(2):
        sent_in_two.clear(map_index=index)
    edited_to(4, sent_in_two)
    for index in range(4):
        sent_in_two.once(map_index=index)
    edited_to(2, sent_in_two)
    assert [sent_in_two.clear(map_index=index).once(map_index=index).state for index in range(2)] == ["success"] * 2
    assert reached(stage) == Counter(digits(20))
