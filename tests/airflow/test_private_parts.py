"""The private parts of Airflow that the provider uses: each test says in a sentence what has changed."""

from __future__ import annotations

import inspect
from uuid import UUID

from airflow.models.renderedtifields import RenderedTaskInstanceFields
from airflow.models.task_state_store import TaskStateStoreModel
from airflow.models.taskinstance import TaskInstance
from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.models.xcom import XComModel
from airflow.sdk import DAG, BaseOperator, task
from airflow.sdk.definitions.mappedoperator import MappedOperator
from airflow.sdk.execution_time import comms, task_runner

from cpaas_provider.cli.journal.instances import Instance, coordinates
from cpaas_provider.operators.base import CpaasOperator
from cpaas_provider.operators.sms import SendSmsOperator

RENDERING = ["self", "parent", "template_fields", "context", "jinja_env", "seen_oids"]


def parameters(function: object) -> list[str]:
    return list(inspect.signature(function).parameters)  # type: ignore[arg-type]  # a function of Airflow


class TestMaskedRendering:
    """What ``operators/_masked_rendering.py`` uses."""

    def test_operators_render_through_one_method(self) -> None:
        method = getattr(BaseOperator, "_do_render_template_fields", None)
        assert method is not None, "Airflow renders fields no longer through BaseOperator._do_render_template_fields."
        assert parameters(method) == RENDERING, "Airflow calls _do_render_template_fields with other arguments now."
        assert parameters(CpaasOperator._do_render_template_fields) == RENDERING

    def test_plain_and_mapped_operators_call_it(self) -> None:
        for kind in (BaseOperator, MappedOperator):
            source = inspect.getsource(kind.render_template_fields)
            assert "_do_render_template_fields(" in source, (
                f"{kind.__name__}.render_template_fields does not call _do_render_template_fields any more, so masked "
                "fields would be stored as they are."
            )

    def test_a_mapped_operator_says_what_it_is_mapped_over(self) -> None:
        with DAG("mapped", schedule=None):

            @task
            def rows() -> list[dict[str, str]]:
                return []

            by_rows = SendSmsOperator.partial(task_id="by_rows", sender_id="Shop").expand_kwargs(rows())
            by_field = SendSmsOperator.partial(task_id="field", content="Hello").expand(recipients=["+2348031234567"])
        assert set(by_rows.partial_kwargs) >= {"sender_id"}, "A mapped operator has no partial_kwargs any more."
        assert not isinstance(by_rows.expand_input.value, (dict, list)), (
            "expand_input.value of expand_kwargs is no longer the upstream task's result."
        )
        assert set(by_field.expand_input.value) == {"recipients"}, (
            "expand_input.value of expand is no mapping any more."
        )


class TestStateStoreMessages:
    """What ``operators/_runtime/state/supervisor.py`` uses."""

    def test_the_supervisor_is_spoken_to_through_one_object(self) -> None:
        declared = "SUPERVISOR_COMMS" in {*vars(task_runner), *task_runner.__annotations__}
        assert declared, "airflow.sdk.execution_time.task_runner has no SUPERVISOR_COMMS any more."

    def test_the_messages_have_their_fields(self) -> None:
        for name, fields in {
            "GetTaskStateStore": {"ti_id", "key"},
            "SetTaskStateStore": {"ti_id", "key", "value", "expires_at"},
            "DeleteTaskStateStore": {"ti_id", "key"},
            "TaskStateStoreResult": {"value"},
        }.items():
            message = getattr(comms, name, None)
            assert message is not None, f"Airflow has no message {name} any more."
            missing = fields - set(message.model_fields)
            assert not missing, f"Airflow's message {name} has no {', '.join(sorted(missing))} any more."


class TestTaskTables:
    """What ``cli/journal/instances.py`` and ``cli/messages/balance.py`` use."""

    def test_state_and_task_instances_have_the_same_coordinates(self) -> None:
        state, instances = coordinates(TaskStateStoreModel), coordinates(TaskInstance)
        assert len(state) == len(instances), "Airflow's task states and task instances have other coordinates now."
        known = {"dag_id", "run_id", "task_id", "map_index", "region_index", "region_id", "key"}
        unique = {
            column.key
            for constraint in TaskStateStoreModel.__table__.constraints
            for column in getattr(constraint, "columns", ())
            if constraint.name == "task_state_store_uq"
        }
        assert unique - {"dag_run_id"} <= known, f"A task's state is known by more in this Airflow: {unique - known}."

    def test_a_scope_takes_what_the_state_is_known_by(self) -> None:
        region = getattr(TaskStateStoreModel, "region_id", None)
        instance = Instance("dag", "run", "task", 3, region_id=None if region is None else UUID(int=0))
        assert (instance.scope.dag_id, instance.scope.map_index) == ("dag", 3), "Airflow's TaskScope has changed."

    def test_rendered_fields_are_asked_for_by_a_key(self) -> None:
        assert TaskInstanceKey._fields == ("dag_id", "task_id", "run_id", "try_number", "map_index"), (
            "Airflow's TaskInstanceKey has other fields now."
        )
        assert hasattr(RenderedTaskInstanceFields, "get_templated_fields"), (
            "RenderedTaskInstanceFields has no get_templated_fields any more."
        )

    def test_xcoms_and_rendered_fields_can_be_joined(self) -> None:
        by_ids = {"dag_id", "task_id", "run_id", "map_index"}
        for ids in ({"task_instance_id"}, by_ids):
            if all(hasattr(RenderedTaskInstanceFields, name) for name in ids):
                assert all(hasattr(XComModel, name) for name in ids), "XComs are known by something else now."
                break
        else:
            raise AssertionError("Airflow's rendered fields are known by something else now.")
        assert all(hasattr(XComModel, name) for name in by_ids), "XComs no longer have the ids of their task instance."
