"""A mapped campaign whose number of partitions is changed within a run, without a key."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from airflow.models.dagbag import DBDagBag
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from sqlalchemy import select

from cpaas_provider.operators.base_campaign import partitions
from cpaas_provider.operators.sms import SmsCampaignOperator
from tests.airflow.harness.campaigns import TEXT, count_messages, digits, requests, rows
from tests.airflow.harness.task_runner import TaskRunner
from tests.airflow.harness.tries import Run, new_dag


@pytest.fixture
def sent_in_two(task_runner: TaskRunner) -> Run:
    """A campaign whose two partitions were sent."""
    with new_dag() as dag:
        mapped(2)
    run = Run(task_runner, dag)
    assert [run.run_try(map_index=index).state for index in range(2)] == ["success"] * 2
    return run


def mapped(count: int) -> None:
    SmsCampaignOperator.partial(task_id="campaign", source=rows(20), content=TEXT).expand(partition=partitions(count))


def change_partitions(count: int, run: Run) -> None:
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
def test_another_number_of_partitions_after_a_clear_is_refused(
    task_runner: TaskRunner, sent_in_two: Run, order: tuple[int, ...]
) -> None:
    before = requests(task_runner)
    for index in range(2):
        sent_in_two.clear(map_index=index)
    change_partitions(4, sent_in_two)
    tries = {index: sent_in_two.run_try(map_index=index) for index in order}
    assert [tries[index].state for index in range(4)] == ["failed"] * 4
    assert "partition 1 of 2, and this one is partition 1 of 4" in tries[1].error
    assert "began with 2 partitions, and this one has 4" in tries[3].error
    assert (requests(task_runner), count_messages(task_runner)) == (before, Counter(digits(20)))


def test_original_number_of_partitions_continues(task_runner: TaskRunner, sent_in_two: Run) -> None:
    for index in range(2):
        sent_in_two.clear(map_index=index)
    change_partitions(4, sent_in_two)
    for index in range(4):
        sent_in_two.run_try(map_index=index)
    change_partitions(2, sent_in_two)
    assert [sent_in_two.clear(map_index=index).run_try(map_index=index).state for index in range(2)] == ["success"] * 2
    assert count_messages(task_runner) == Counter(digits(20))


def run_over(task_runner: TaskRunner, given: list[dict[str, Any]], **common: Any) -> Run:
    """Return a run of a campaign that is mapped over arguments."""
    with new_dag() as dag:
        usual = {"source": rows(20), "content": TEXT, **common}
        SmsCampaignOperator.partial(
            task_id="campaign", **{name: value for name, value in usual.items() if name not in given[0]}
        ).expand_kwargs(given)
    return Run(task_runner, dag)


@pytest.mark.parametrize("resend_on_clear", [False, True])
@pytest.mark.parametrize("count", [1, 2])
def test_partition_given_to_two_task_instances_is_sent_once(
    task_runner: TaskRunner, count: int, resend_on_clear: bool
) -> None:
    first = partitions(count)[0]
    run = run_over(task_runner, [{"partition": first}, {"partition": first}], resend_on_clear=resend_on_clear)
    assert run.run_try(map_index=0).state == "success"
    sent = requests(task_runner)
    refused = run.run_try(map_index=1)
    assert (refused.state, requests(task_runner)) == ("failed", sent)
    assert f"map index 0 has the same partition as this one: partition 0 of {count}" in refused.error
    assert "Nothing was sent in this try" in refused.error
    assert max(count_messages(task_runner).values()) == 1


def test_refused_task_instance_holds_no_partition(task_runner: TaskRunner) -> None:
    first, second = partitions(2)
    run = run_over(task_runner, [{"partition": first}, {"partition": first}])
    assert [run.run_try(map_index=index).state for index in (0, 1)] == ["success", "failed"]
    assert run.clear(map_index=0).run_try(map_index=0).state == "success"
    with type(run.dag)(run.dag.dag_id, schedule=None, default_args=run.dag.default_args) as dag:
        SmsCampaignOperator.partial(task_id="campaign", source=rows(20), content=TEXT).expand_kwargs(
            [{"partition": first}, {"partition": second}]
        )
    run.dag = dag
    assert run.clear(map_index=1).run_try(map_index=1).state == "success"
    assert count_messages(task_runner) == Counter(digits(20))


def test_partitions_of_several_contents_are_campaigns_of_their_own(task_runner: TaskRunner) -> None:
    with new_dag() as dag:
        SmsCampaignOperator.partial(task_id="campaign", source=rows(20)).expand(
            partition=partitions(2), content=[TEXT, f"{TEXT} again"]
        )
    run = Run(task_runner, dag)
    assert [run.run_try(map_index=index).state for index in range(4)] == ["success"] * 4
    assert set(count_messages(task_runner).values()) == {2}


def test_partitions_of_several_sources_are_campaigns_of_their_own(task_runner: TaskRunner) -> None:
    given = [{"partition": first, "source": rows(number)} for number in (20, 10) for first in partitions(2)]
    run = run_over(task_runner, given)
    assert [run.run_try(map_index=index).state for index in range(4)] == ["success"] * 4


def test_swapped_partitions_are_refused(task_runner: TaskRunner) -> None:
    first, second = partitions(2)
    run = run_over(task_runner, [{"partition": first}, {"partition": second}])
    assert [run.run_try(map_index=index).state for index in (0, 1)] == ["success"] * 2
    before = requests(task_runner)
    for index in (0, 1):
        run.clear(map_index=index)
    with type(run.dag)(run.dag.dag_id, schedule=None, default_args=run.dag.default_args) as dag:
        SmsCampaignOperator.partial(task_id="campaign", source=rows(20), content=TEXT).expand_kwargs(
            [{"partition": second}, {"partition": first}]
        )
    run.dag = dag
    swapped = [run.run_try(map_index=index) for index in (0, 1)]
    assert [one.state for one in swapped] == ["failed"] * 2
    for index, ended in enumerate(swapped):
        assert f"was partition {index} of 2, and this one is partition {1 - index} of 2" in ended.error
    assert (requests(task_runner), count_messages(task_runner)) == (before, Counter(digits(20)))


DIVIDES = "{{ 1 // 0 }}"
"""A template that cannot be rendered."""


@pytest.mark.parametrize(
    "broken",
    [{"content": DIVIDES}, {"cpaas_conn_id": "cpaas_missing"}, {"on_unknown": "never"}, {"partition": None}],
    ids=["template", "connection", "argument", "no partition"],
)
def test_partition_of_a_try_that_fails_early_is_sent_by_no_other(
    task_runner: TaskRunner, broken: dict[str, Any]
) -> None:
    first, second = partitions(2)
    given: list[dict[str, Any]] = [
        {"partition": first, "content": TEXT},
        {"partition": second, "content": DIVIDES},
    ]
    run = run_over(task_runner, given, retries=0)
    assert [run.run_try(map_index=index).state for index in (0, 1)] == ["success", "failed"]
    given[0].update({"partition": second, **broken})
    given[1].update({"partition": first, "content": TEXT})
    assert [run.clear(map_index=index).run_try(map_index=index).state for index in (0, 1)] == ["failed"] * 2
    assert max(count_messages(task_runner).values()) == 1
