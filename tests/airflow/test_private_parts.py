"""The private parts of Airflow and uvicorn that the provider uses: each test names what has changed."""

from __future__ import annotations

import ast
import importlib
import inspect
from unittest.mock import Mock
from uuid import UUID

import pytest
import uvicorn
from airflow.assets.manager import asset_manager
from airflow.models.renderedtifields import RenderedTaskInstanceFields
from airflow.models.task_state_store import TaskStateStoreModel
from airflow.models.taskinstance import TaskInstance
from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.models.xcom import XComModel
from airflow.sdk import DAG, BaseNotifier, BaseOperator, BaseSensorOperator, serde, task
from airflow.sdk.definitions._internal.templater import Templater
from airflow.sdk.definitions.mappedoperator import MappedOperator
from airflow.sdk.execution_time import comms, task_runner
from airflow.serialization.encoders import coerce_to_core_timetable
from uvicorn import _subprocess
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from cpaas_provider.cli.journal.instances import Instance, coordinates
from cpaas_provider.operators.base import CpaasOperator
from cpaas_provider.operators.sms import SendSmsOperator
from tests.imports import ROOT, Import, imports_of

PROVIDER = ROOT / "provider"
PRIVATE_IMPORTS = {
    ("uvicorn._subprocess", "cli/receiver/workers.py"),
    ("uvicorn.supervisors.multiprocess", "cli/receiver/workers.py"),
    ("uvicorn.protocols.http.httptools_impl.HttpToolsProtocol", "delivery/receiver/http/connection_limits.py"),
    ("uvicorn.protocols.http.httptools_impl.HttpToolsProtocol", "cpaas_sandbox/server.py"),
}
PRIVATE_ATTRIBUTES = {
    "_queue_partitioned_dags": "assets/subscriptions.py",
    "_pre_execute_hook": "operators/base.py",
    "_COUNTRY_CODE_TO_REGION_CODE": "api/recipients/_numbering_plans.py",
    "_extra_allowed": "tasks/airflow/task_listener.py",
}
DOCUMENTED_ATTRIBUTES = {"_asdict"}
"""Of named tuples, in spite of the underscore."""

FOR_TYPES = {"_Decompress"}
"""Of zlib, whose only name for this type it is."""
RENDERING = ["self", "parent", "template_fields", "context", "jinja_env", "seen_oids"]


def parameters(function: object) -> list[str]:
    return list(inspect.signature(function).parameters)  # type: ignore[arg-type]  # a function of Airflow


class TestMaskedRendering:
    """What ``operators/_masked_rendering.py`` and ``_common/rendering.py`` use."""

    def test_operators_render_through_one_method(self) -> None:
        method = getattr(BaseOperator, "_do_render_template_fields", None)
        assert method is not None, "Airflow renders fields no longer through BaseOperator._do_render_template_fields."
        assert parameters(method) == RENDERING, "Airflow calls _do_render_template_fields with other arguments now."
        assert parameters(CpaasOperator._do_render_template_fields) == RENDERING

    def test_templates_render_through_one_method(self) -> None:
        for kind in (BaseOperator, BaseSensorOperator, BaseNotifier):
            assert parameters(kind._render) == ["self", "template", "context", "dag"], (
                f"{kind.__name__}._render takes other arguments now, so native rendering may change texts."
            )
        source = inspect.getsource(Templater.render_template)
        assert "self._render(template, context)" in source, "Airflow no longer renders templates through _render."

    def test_plain_and_mapped_operators_call_it(self) -> None:
        for kind in (BaseOperator, MappedOperator):
            source = inspect.getsource(kind.render_template_fields)
            assert "_do_render_template_fields(" in source, (
                f"{kind.__name__}.render_template_fields does not call _do_render_template_fields any more, so masked "
                "fields would be stored as they are."
            )

    def test_mapped_operator_has_what_it_is_mapped_over(self) -> None:
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
    """What ``tasks/airflow/supervisor.py`` uses."""

    def test_supervisor_is_reached_through_one_object(self) -> None:
        declared = "SUPERVISOR_COMMS" in {*vars(task_runner), *task_runner.__annotations__}
        assert declared, "airflow.sdk.execution_time.task_runner has no SUPERVISOR_COMMS any more."

    def test_messages_have_their_fields(self) -> None:
        for name, fields in {
            "GetTaskStateStore": {"ti_id", "key"},
            "SetTaskStateStore": {"ti_id", "key", "value", "expires_at"},
            "DeleteTaskStateStore": {"ti_id", "key"},
            "TaskStateStoreResult": {"value"},
            "CreateHITLDetailPayload": {"ti_id", "options", "subject", "body", "params", "assigned_users"},
            "HITLDetailRequestResult": {"subject", "body"},
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

    def test_scope_takes_what_the_state_is_known_by(self) -> None:
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


class TestWorkers:
    """What ``cli/receiver/workers.py`` uses. uvicorn has no public way to fork workers."""

    def test_uvicorn_starts_them_through_a_context_that_can_be_replaced(self, monkeypatch: pytest.MonkeyPatch) -> None:
        context = Mock()
        monkeypatch.setattr(_subprocess, "spawn", context)
        process = _subprocess.get_subprocess(uvicorn.Config("app"), target=print, sockets=[])
        assert process is context.Process.return_value, (
            "uvicorn starts its workers no longer through uvicorn._subprocess.spawn, so each would import Airflow anew."
        )


class TestRequestTarget:
    """What ``cpaas_sandbox/server.py`` uses. ASGI does not have the host of a request target."""

    def test_uvicorn_has_target_and_headers_when_a_head_is_complete(self) -> None:
        for method, attribute in (
            ("on_url", "self.url"),
            ("on_header", "self.headers"),
            ("on_headers_complete", "self.url"),
        ):
            source = inspect.getsource(getattr(HttpToolsProtocol, method))
            assert attribute in source, f"uvicorn's HttpToolsProtocol.{method} has no {attribute} any more."


class TestBoundedParsing:
    """What ``delivery/receiver/http/connection_limits.py`` uses. uvicorn limits no headers, trailers and requests."""

    @pytest.mark.parametrize(
        ("method", "statement"),
        [
            ("on_message_begin", "self.headers = []"),
            ("on_message_begin", '"headers": self.headers'),
            ("on_header", "self.headers.append("),
            ("on_headers_complete", "scope=self.scope"),
            ("on_headers_complete", "self.pipeline.appendleft("),
        ],
    )
    def test_uvicorn_stores_headers_and_requests_in_lists_that_can_be_limited(
        self, method: str, statement: str
    ) -> None:
        source = inspect.getsource(getattr(HttpToolsProtocol, method))
        assert statement in source, (
            f"uvicorn's HttpToolsProtocol.{method} has no {statement} any more, so LimitedProtocol may not limit it."
        )


class TestMissedRuns:
    """What ``assets/subscriptions.py`` uses."""

    def test_runs_of_partitioned_dags_are_queued_for_one_event(self) -> None:
        method = getattr(asset_manager, "_queue_partitioned_dags", None)
        assert method is not None, "Airflow's asset manager has no _queue_partitioned_dags any more."
        names = ["asset_id", "partition_dags", "event", "partition_key", "partition_date", "task_instance", "session"]
        assert set(parameters(method)) == set(names), "Airflow's _queue_partitioned_dags takes other arguments now."


class TestResults:
    """What ``tasks/airflow/task_listener.py`` uses."""

    def test_classes_that_a_process_allows_are_a_set_of_names(self) -> None:
        allowed = getattr(serde, "_extra_allowed", None)
        assert isinstance(allowed, set), "Airflow's serde has no set _extra_allowed of names any more."
        assert all(isinstance(name, str) for name in allowed)


def place_of(path: str) -> str:
    """Return a path as the tables name it: in the provider's package, or in another one."""
    return path.removeprefix("provider/").removeprefix("cpaas_provider/")


@pytest.fixture(scope="module")
def imports() -> list[Import]:
    return imports_of(PROVIDER)


@pytest.fixture(scope="module")
def missing(imports: list[Import]) -> list[str]:
    """Return the imports that fail, those in functions too."""
    return [
        f"{imported.where}: there is no {imported.module} any more."
        for imported in imports
        if not (imported.is_for_types or exists(imported.module))
    ]


@pytest.fixture(scope="module")
def foreign_private_attributes() -> dict[str, str]:
    """Return the files that use names with an underscore which no file of ours defines, by these names."""
    defined, used = DOCUMENTED_ATTRIBUTES | FOR_TYPES, {}
    for path in PROVIDER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                defined.add(node.name)
            elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
                defined.add(node.id if isinstance(node, ast.Name) else node.attr)
            elif isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.endswith("__"):
                used[node.attr] = place_of(f"provider/{path.relative_to(PROVIDER)}")
    return {name: path for name, path in used.items() if name not in defined}


def exists(name: str) -> bool:
    """Return whether a name is a module, or in one."""
    module, _, attribute = name.rpartition(".")
    try:
        return hasattr(importlib.import_module(module or name), attribute) or bool(importlib.import_module(name))
    except ImportError:
        return False


class TestNames:
    def test_imported_names_exist(self, missing: list[str]) -> None:
        assert missing == []

    def test_name_that_does_not_exist_is_found(self) -> None:
        names = [
            "airflow.sdk",
            "airflow.sdk.DAG",
            "airflow.sdk.exceptions.TaskDeferred",
            "airflow.sdk.gone",
            "gone.gone",
        ]
        assert [name for name in names if not exists(name)] == ["airflow.sdk.gone", "gone.gone"]

    def test_no_other_private_part_is_imported(self, imports: list[Import]) -> None:
        # uvicorn documents the names of its first level, and no module.
        private = {
            (imported.module, place_of(imported.where.partition(":")[0]))
            for imported in imports
            if "._" in imported.module
            or (imported.module.startswith("uvicorn.") and not hasattr(uvicorn, imported.module[8:]))
        }
        assert private == PRIVATE_IMPORTS

    def test_no_other_private_attribute_is_used(self, foreign_private_attributes: dict[str, str]) -> None:
        assert foreign_private_attributes == PRIVATE_ATTRIBUTES


class TestPreExecute:
    """What ``operators/base.py`` uses."""

    def test_pre_execute_of_the_author_is_where_it_is_read(self) -> None:
        def check(context: object) -> None:
            """Do nothing."""

        assert BaseOperator(task_id="t", pre_execute=check)._pre_execute_hook is check
        assert BaseOperator(task_id="u")._pre_execute_hook is None


class TestSchedule:
    """What ``tasks/airflow/context.py`` uses."""

    def test_timetable_of_the_task_sdk_becomes_one_with_a_next_run(self) -> None:
        dag = DAG("daily", schedule="@daily")
        timetable = coerce_to_core_timetable(dag.timetable)
        assert parameters(timetable.next_dagrun_info_v2) == ["last_dagrun_info", "restriction"], (
            "Airflow asks a timetable for the next run with other arguments now."
        )
