"""Renders templates where Airflow renders to native objects, without a change of any text.

Airflow parses the text of a template as Python: ``1e5`` becomes 100000.0, ``+234...`` loses its plus, and a message in
brackets becomes a list. Here a template that is one object gives this object, and any other gives its text.
``_render`` of Airflow, which operators, sensors and notifiers override, is private.
``tests/airflow/test_private_parts.py`` fails when it changes.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jinja2

TEXT_FIELDS = frozenset(
    {
        "callback", "channel", "content", "cpaas_conn_id", "external_ref", "frequency_contact", "from_name", "group",
        "idempotency_key",
        "map_name", "network", "otp_id", "reply_to", "row_id", "sender_id", "subject", "template_id",
        "timezone", "token",
    }
)  # fmt: skip
"""Templated fields that are text. Others may be lists, mappings or numbers."""

_OF_A_DATE = ("'ds", "'ts", "'logical_date'", "'data_interval_")
_NO_DATE = (
    "The run has no logical date, which a run that is triggered need not have. A template that works in each run: "
    "{{ (dag_run.logical_date or dag_run.run_after) | ds }}."
)

_CONTAINERS = (list, tuple, dict, set, frozenset, Mapping)


def renders_natively(templater: Any, environment: jinja2.Environment) -> bool:
    """Return whether an operator, a sensor or a notifier wants native objects, or otherwise its DAG."""
    import jinja2.nativetypes

    own: bool | None = getattr(templater, "render_template_as_native_obj", None)
    return isinstance(environment, jinja2.nativetypes.NativeEnvironment) if own is None else own


def render(templater: Any, template: jinja2.Template, context: MutableMapping[str, Any]) -> Any:
    """Return the text of a template, or with native rendering the one object that it consists of.

    :raises jinja2.TemplateError: when it cannot be rendered
    """
    import jinja2

    environment = template.environment
    # As Airflow does it: ``Template.render`` would read every variable of the context.
    values = copy.copy(context)
    if template.globals:
        values.update((name, value) for name, value in template.globals.items() if name not in values)
    try:
        nodes = list(
            template.root_render_func(
                environment.context_class(environment, values, template.name, template.blocks)  # type: ignore[arg-type]
            )
        )
        is_native = renders_natively(templater, environment)
        if is_native and len(nodes) == 1 and not isinstance(nodes[0], (str, jinja2.Undefined)):
            return nodes[0]
        # The text of something undefined raises an error.
        text = "".join(map(str, nodes))
    except jinja2.UndefinedError as error:
        if getattr(values.get("dag_run"), "logical_date", error) is None and str(error).startswith(_OF_A_DATE):
            raise jinja2.UndefinedError(f"{error}. {_NO_DATE}") from None
        environment.handle_exception()
    except Exception:  # noqa: BLE001 - raises it again, with the line of the template
        environment.handle_exception()
    # Jinja makes a text of a constant.
    return None if is_native and text == "None" else text


def render_typed(
    templater: Any,
    render_fields: Callable[..., None],
    parent: Any,
    fields: Iterable[str],
    context: Any,
    environment: jinja2.Environment,
    seen_oids: set[int],
) -> None:
    """Render fields as Airflow does, and give natively rendered ones the type that they are for.

    :param templater: the operator or sensor
    :param render_fields: Airflow's own ``_do_render_template_fields``
    :param parent: the object that has the fields: the templater, or an object in one of its fields
    """
    names = list(fields)
    texts = [name for name in names if isinstance(getattr(parent, name, None), str)]
    render_fields(parent, names, context, environment, seen_oids)
    if renders_natively(templater, environment):
        for name in texts:
            setattr(parent, name, typed(name, getattr(parent, name)))


def typed(field: str, value: Any) -> Any:
    """Return the rendered template of a field: text for a field of text, otherwise also a list that is written as one.

    ``None``, and a list or a mapping for a field of text, stay as they are, so that they are refused.
    """
    if field in TEXT_FIELDS:
        return value if value is None or isinstance(value, (str, *_CONTAINERS)) else str(value)
    return parse_container(value)


def parse_container(value: Any) -> Any:
    """Return the list or mapping that a text is written as in Python; any other value as it is."""
    if not isinstance(value, str) or not value.lstrip().startswith(("[", "(", "{")):
        return value
    try:
        parsed = ast.literal_eval(value.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return value
    return parsed if isinstance(parsed, _CONTAINERS) else value
