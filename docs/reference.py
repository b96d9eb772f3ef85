"""Writes the reference part of README.md from the code: run ``make docs``; a test holds the two together."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pendulum

from cpaas_provider import assets, operators, sensors, sources
from cpaas_provider.api.settings import ClientSettings
from cpaas_provider.operators.campaigns import CampaignOperator
from cpaas_provider.operators.journaled import JournaledOperator
from cpaas_provider.operators.sends import SendOperator
from cpaas_provider.provider_info import CONNECTION_FIELDS

README = Path(__file__).parent.parent / "README.md"
BEGIN, END = "<!-- reference: made by `make docs` -->", "<!-- end of reference -->"

_ORDER = (
    "SendSmsOperator SendEmailOperator SmsCampaignOperator EmailCampaignOperator RequestOtpOperator "
    "VerifyOtpOperator GetOtpOperator FindOtpsOperator RevokeOtpOperator BuyAirtimeOperator "
    "PhoneLookupOperator GetContactTableOperator GetContactRowOperator CreateContactRowOperator "
    "UpdateContactRowOperator UpsertContactRowOperator DeleteContactRowOperator"
)
_SENSORS = "DeliverySensor OtpStatusSensor"
_HAPPENINGS = "campaign_finished messages_failed link_clicked airtime_succeeded"
_SOURCES = "DeliveryEventSource CsvSource JsonLinesSource ParquetSource SqlSource ListSource"
_PARAM = re.compile(r":param (\w+): (.*?)(?=\n\s*:|\Z)", re.DOTALL)


def reference() -> str:
    """Return the reference as Markdown."""
    return "\n".join([BEGIN, "", *_connection(), *_classes(), *_client(), END])


def _connection() -> Iterator[str]:
    yield "### Connection fields"
    yield ""
    yield "Host is the base URL, password the API key; the rest are extras."
    yield "An empty one counts as not given, except `auth_scheme`."
    yield ""
    yield "| Extra | Default | What it does |"
    yield "|---|---|---|"
    for name, field in CONNECTION_FIELDS.items():
        schema: Any = field["schema"]
        yield f"| `{name}` | {_shown(schema.get('default'))} | {_cell(str(field['description']))} |"
    yield ""


def _classes() -> Iterator[str]:
    yield from _shared()
    for name in _ORDER.split():
        yield from _class(getattr(operators, name))
    for name in _SENSORS.split():
        yield from _class(getattr(sensors, name))
    yield from _happenings()
    for name in _SOURCES.split():
        yield from _described(getattr(sources, name), "cpaas_provider.sources")


def _shared() -> Iterator[str]:
    yield "### Arguments of every sending operator"
    yield ""
    yield (
        "`SendSmsOperator`, `SendEmailOperator`, both campaigns, `RequestOtpOperator` and `BuyAirtimeOperator` take "
        "all of these, `CreateContactRowOperator` and `UpsertContactRowOperator` the first four. What they mean on "
        "retry, clear and backfill is under [What is promised about sending](#what-is-promised-about-sending)."
    )
    yield ""
    yield from _table(list(SHARED.values()), documentation(JournaledOperator) | documentation(SendOperator))
    yield "### Arguments of both campaigns"
    yield ""
    yield (
        "`SmsCampaignOperator` and `EmailCampaignOperator` take these and those of every sending operator; "
        "[docs/campaigns.md](docs/campaigns.md) says how they go together."
    )
    yield ""
    own_of_each = {argument.name for argument in own_arguments(operators.SmsCampaignOperator)}
    both = [argument for name, argument in CAMPAIGN.items() if name == "source" or name not in own_of_each]
    yield from _table(both, documentation(CampaignOperator))
    yield from _described(operators.partitions, "cpaas_provider.operators")


def _happenings() -> Iterator[str]:
    yield "### Schedules and assets of delivery"
    yield ""
    yield (
        "`from cpaas_provider.assets import on_campaign_finished`, and so on. "
        "[docs/delivery.md](docs/delivery.md#dags-that-start-on-delivery) says what a run is told."
    )
    yield ""
    yield "| `schedule=` | Its asset | Arguments | It starts |"
    yield "|---|---|---|---|"
    taken: dict[str, inspect.Parameter] = {}
    described: dict[str, str] = {}
    for name in _HAPPENINGS.split():
        asset = getattr(assets, name)
        of = inspect.signature(asset).parameters
        taken |= of
        described = documentation(asset) | described
        starts = _first_sentence(getattr(assets, f"on_{name}")).removeprefix("Return the schedule of ")
        named = ", ".join(f"`{argument}`" for argument in of)
        yield f"| `on_{name}` | `{name}` | {named} | {starts.partition(', see')[0]} |"
    yield ""
    yield from _table(list(taken.values()), described)


def _first_sentence(what: Any) -> str:
    return _cell(" ".join((inspect.getdoc(what) or "").split("\n\n")[0].split()))


def _class(kind: type) -> Iterator[str]:
    described = documentation(kind)
    doc = inspect.getdoc(kind) or ""
    yield f"### `{kind.__name__}`"
    yield ""
    yield f"`from {kind.__module__} import {kind.__name__}`"
    yield ""
    yield re.sub(r"``", "`", doc.split(":param", 1)[0].strip())
    yield ""
    taken = arguments(kind)
    elsewhere = documented_elsewhere(kind)
    yield from _table([argument for argument in taken if argument.name not in elsewhere], described)
    if issubclass(kind, CampaignOperator):
        yield (
            "And [the arguments of both campaigns](#arguments-of-both-campaigns) and "
            "[of every sending operator](#arguments-of-every-sending-operator)."
        )
        yield ""
    elif any(argument.name in SHARED for argument in taken):
        yield "And [the arguments of every sending operator](#arguments-of-every-sending-operator)."
        yield ""


def _described(what: Any, home: str) -> Iterator[str]:
    """Yield the section of something that is no operator."""
    yield f"### `{what.__name__}`"
    yield ""
    yield f"`from {home} import {what.__name__}`"
    yield ""
    text = (inspect.getdoc(what) or "").split(":param", 1)[0].strip()
    text = re.sub(r"\.\. code-block:: python\n\n((?: +.*\n?)+)", _fenced, text)
    yield re.sub(r"(?<!`)``(?!`)", "`", text)
    yield ""
    yield from _table(list(inspect.signature(what).parameters.values()), documentation(what))


def _fenced(block: re.Match[str]) -> str:
    return f"```python\n{inspect.cleandoc(block[1])}\n```\n"


def _table(taken: list[inspect.Parameter], described: dict[str, str]) -> Iterator[str]:
    yield "| Argument | Default | Meaning |"
    yield "|---|---|---|"
    for argument in taken:
        default = "required" if argument.default is inspect.Parameter.empty else _shown(argument.default)
        yield f"| `{argument.name}` | {default} | {_cell(described[argument.name])} |"
    yield ""


def _client() -> Iterator[str]:
    yield "### Options of `CpaasClient` and `AsyncCpaasClient`"
    yield ""
    yield "| Option | Default | Meaning |"
    yield "|---|---|---|"
    described = documentation(ClientSettings)
    for name, option in inspect.signature(ClientSettings).parameters.items():
        default = "required" if option.default is inspect.Parameter.empty else _shown(option.default)
        yield f"| `{name}` | {default} | {_cell(described[name])} |"
    yield ""


def arguments(kind: type) -> list[inspect.Parameter]:
    """Return an operator's own arguments, those of its bases in this package included, Airflow's left out."""
    found: dict[str, inspect.Parameter] = {}
    for base in kind.__mro__:
        if base.__module__.startswith("cpaas_provider") and "__init__" in base.__dict__:
            for name, parameter in inspect.signature(base.__init__).parameters.items():
                if name != "self" and parameter.kind is not inspect.Parameter.VAR_KEYWORD:
                    found.setdefault(name, parameter)
    return list(found.values())


def own_arguments(kind: type) -> list[inspect.Parameter]:
    """Return the arguments a class itself adds, those every operator takes left out."""
    taken = inspect.signature(kind.__dict__["__init__"]).parameters.values()
    named = [one for one in taken if one.kind is not inspect.Parameter.VAR_KEYWORD]
    return [one for one in named if one.name not in ("self", "cpaas_conn_id")]


SHARED = {one.name: one for kind in (JournaledOperator, SendOperator) for one in own_arguments(kind)}


CAMPAIGN = {one.name: one for one in own_arguments(CampaignOperator)}


def documented_elsewhere(kind: type) -> set[str]:
    """Return the arguments of a class that stand in a table of their own, for all who take them."""
    campaign = (
        set(CAMPAIGN) - {one.name for one in own_arguments(kind)} if issubclass(kind, CampaignOperator) else set()
    )
    return set(SHARED) | campaign


def documentation(kind: Any) -> dict[str, str]:
    """Return what the docstring of a class or function says of each parameter."""
    return {name: " ".join(text.split()) for name, text in _PARAM.findall(inspect.getdoc(kind) or "")}


def _shown(default: object) -> str:
    if default is None:
        return "-"
    text = f"{default:g}" if isinstance(default, float) else str(default)
    if isinstance(default, timedelta):
        days, rest = divmod(default, timedelta(days=1))
        text = (
            f"{days} day{'s' * (days > 1)}" if days and not rest else pendulum.duration(seconds=rest.seconds).in_words()
        )
    text = text.lower() if isinstance(default, bool) else text
    return f"`{text}`" if text else "empty"


def _cell(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|").rstrip(".")


def main() -> None:
    """Replace the reference in README.md, or with ``--check`` tell whether it is true."""
    text = README.read_text(encoding="utf-8")
    head, tail = text.split(BEGIN)[0], text.split(END)[1]
    updated = head + reference() + tail
    if "--check" in sys.argv and updated != text:
        raise SystemExit("README.md does not say what the code says. Run: make docs")
    README.write_text(updated, encoding="utf-8")


if __name__ == "__main__":
    main()
