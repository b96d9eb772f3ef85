"""Renders masked fields, so that Airflow stores and shows only their summaries.

Airflow has no public way for that. This module and the method that calls it use three private parts of Airflow:
``BaseOperator._do_render_template_fields``, and ``expand_input`` and ``partial_kwargs`` of a mapped operator.
``tests/airflow/test_private_parts.py`` fails when one of them changes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
    AirflowRuntimeError,
    ErrorType,
)

from cpaas_provider._common.rendering import render_typed, renders_natively, typed

if TYPE_CHECKING:
    import jinja2
    from airflow.sdk import BaseOperator, Context


_NOT_FOUND = (ErrorType.VARIABLE_NOT_FOUND, ErrorType.CONNECTION_NOT_FOUND)


def render_fields(
    operator: BaseOperator,
    render_public: Callable[..., None],
    template_fields: Iterable[str],
    masked_fields: Collection[str],
    context: Context,
    jinja_env: jinja2.Environment,
    seen_oids: set[int],
) -> dict[str, Any]:
    """Render the public fields as Airflow does, and return the rendered values of the masked fields.

    Fields that an upstream task filled are data, not templates. They are left as they are.

    :param render_public: Airflow's own ``_do_render_template_fields``
    """
    mapped = _mapped_fields(operator, context)
    public = [field for field in template_fields if field not in mapped and field not in masked_fields]
    render_typed(operator, render_public, operator, public, context, jinja_env, seen_oids)
    return {
        field: value if field in mapped else _render_quietly(operator, field, context, jinja_env, seen_oids)
        for field in masked_fields
        if (value := getattr(operator, field)) is not None
    }


def _mapped_fields(operator: BaseOperator, context: Context) -> frozenset[str]:
    """Return the names of the fields that an upstream task filled through ``expand_kwargs``.

    Airflow would render them too, so that a template in a customer's text could read connections. A literal list in
    the DAG file comes from the author and is rendered.
    """
    dag = context.get("dag")
    declared: Any = dag.task_dict.get(operator.task_id) if dag is not None else None
    expanded = getattr(getattr(declared, "expand_input", None), "value", None)
    if isinstance(expanded, (list, tuple)):
        # An entry of a literal list may be the output of an upstream task.
        expanded = expanded[context["ti"].map_index or 0]
    if expanded is None or isinstance(expanded, Mapping):
        return frozenset()
    # An operator has its argument dry_run under another name, because BaseOperator has a method dry_run.
    own = {"without_sending" if name == "dry_run" else name for name in declared.partial_kwargs}
    return frozenset(operator.template_fields) - own


def _render_quietly(
    operator: BaseOperator, field: str, context: Context, jinja_env: jinja2.Environment, seen_oids: set[int]
) -> Any:
    """Render one field. An error names the field and never quotes its value, which Airflow's own message would do."""
    from cpaas_provider.api.redact import redact

    try:
        value = getattr(operator, field)
        # Airflow renders such an object in place, and mapped task instances in one process share it.
        value = copy.copy(value) if hasattr(value, "template_fields") else value
        rendered = operator.render_template(value, context, jinja_env, seen_oids)
        is_native_text = isinstance(value, str) and renders_natively(operator, jinja_env)
        return typed(field, rendered) if is_native_text else rendered
    except Exception as error:  # noqa: BLE001 - any error of a template may quote its values
        # A retry may find a missing XCom or variable, but cannot repair a broken template.
        broken = type(error).__module__.startswith("jinja2")
        missing = _missing_name(error)
        reason = f": {redact(missing or str(error), ())}" if broken or missing else ""
        kind = AirflowFailException if broken else AirflowException
        raise kind(
            f"The template of {field} cannot be rendered ({type(error).__name__}{reason}). Nothing was sent."
        ) from None


def _missing_name(error: Exception) -> str:
    """Return which variable or connection Airflow does not have; empty if the error is another one."""
    if isinstance(error, AirflowNotFoundException):
        return str(error)
    if not isinstance(error, AirflowRuntimeError) or error.error.error not in _NOT_FOUND:
        return ""
    detail = error.error.detail or {}
    return str(detail.get("message") or f"{error.error.error.value} {detail.get('key') or detail.get('conn_id') or ''}")
