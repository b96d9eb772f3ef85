"""What the code keeps as data, as Markdown: connection, configuration, metrics, results files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cpaas_docs import meanings
from cpaas_docs.signatures import find, shown


def connection() -> Iterator[str]:
    """Yield the fields of a connection, as the form in Airflow has them."""
    info = provider_info()
    (kind,) = info["connection-types"]
    look = kind["ui-field-behaviour"]
    for field, label in look["relabeling"].items():
        yield f"* {label} (`{field}`, required): for example `{look['placeholders'][field]}`."
    for name, field in find("cpaas_provider.provider_info.CONNECTION_FIELDS").items():
        schema = field["schema"]
        default = f", default {shown(schema['default'])}" if schema.get("default") is not None else ""
        words = f"({field['label']}; {_json_type(schema)}{default}): {field['description']}"
        yield f'* <a id="extra-{name}"></a>`{name}` {words}'


def configuration() -> Iterator[str]:
    """Yield the options of Airflow's configuration."""
    for section, content in provider_info()["config"].items():
        yield content["description"]
        yield ""
        for name, option in content["options"].items():
            yield f"## `[{section}] {name}`"
            yield ""
            yield option["description"]
            yield ""
            yield "```ini"
            yield f"[{section}]"
            yield f"{name} = {option['example'] or option['default'] or ''}"
            yield "```"
            yield ""
            yield f"* Environment variable: `AIRFLOW__{section.upper()}__{name.upper()}`"
            yield f"* Type: {option['type']}{', sensitive' if option.get('sensitive') else ''}"
            yield f"* Default: {'none' if option['default'] is None else '`' + option['default'] + '`'}"
            yield ""


def metrics() -> Iterator[str]:
    """Yield the metrics, as the code's own table has them."""
    yield "| Metric | Kind | Meaning |"
    yield "|---|---|---|"
    for metric in find("cpaas_provider.hooks.metrics.METRICS"):
        yield f"| `{metric.name}` | {metric.kind} | {metric.meaning} |"
    yield ""


def columns(path: str) -> Iterator[str]:
    """Yield the columns of a results file, in their order."""
    yield "| Column | Type | Meaning |"
    yield "|---|---|---|"
    for name, kind in find(path).items():
        yield f"| `{name}` | {kind} | {meanings.COLUMNS[name]} |"
    yield ""


def values(path: str, said: str) -> Iterator[str]:
    """Yield the values of an enumeration.

    :param said: the table of ``cpaas_docs.meanings`` that has their meanings
    """
    yield "| Value | Meaning |"
    yield "|---|---|"
    for member in find(path):
        # A file has a number's name, and text as it is.
        word = member.value if isinstance(member.value, str) else member.name.lower()
        yield f"| `{word}` | {getattr(meanings, said)[member.value]} |"
    yield ""


def provider_info() -> Mapping[str, Any]:
    """Return what the provider tells Airflow of itself."""
    info: Mapping[str, Any] = find("cpaas_provider.provider_info.get_provider_info")()
    return info


def _json_type(schema: Mapping[str, Any]) -> str:
    (name,) = [one for one in schema["type"] if one != "null"]
    words = {"string": "text", "integer": "whole number", "boolean": "true or false"}
    return "secret" if schema.get("format") == "password" else words.get(name, name)
