"""Seeding through the control API: templates, columns, rows, look-ups, outcomes; all of it or nothing."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from cpaas_provider.sandbox.core import state
from cpaas_provider.sandbox.core.context import Column, Sandbox
from cpaas_provider.sandbox.core.validation import Msisdn, in_words
from cpaas_provider.sandbox.reports.outcomes import OUTCOMES
from cpaas_provider.sandbox.service.handlers import contacts
from cpaas_provider.sandbox.service.requests import COLUMN_TYPES, row_body

Text = Annotated[str, Field(min_length=1, max_length=200)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Template(_Strict):
    """A template: its text, and for which channel it may be named."""

    id: Text
    channel: Literal["sms", "email", "any"] = "any"
    subject: str | None = None
    content: Annotated[str, Field(min_length=1)]


class SeedColumn(_Strict):
    """A column of the contact table."""

    id: Text
    name: Text
    type: Text
    options: list[Text] = []


class SeedRow(_Strict):
    """A contact row; cells by column id."""

    id: Text | None = None
    columns: dict[str, Any]


class Lookup(_Strict):
    """What a look-up of a number answers; fields left out are derived from the number."""

    phone: Msisdn
    operator: str | None = None
    country: str | None = None
    ported: bool | None = None
    dnd: bool | None = None


class Seeding(_Strict):
    """What is laid in. `columns` replaces the table's columns and removes its rows; the rest is added."""

    templates: list[Template] = []
    columns: list[SeedColumn] | None = None
    rows: list[SeedRow] = []
    lookups: list[Lookup] = []
    outcomes: dict[Literal["sms", "email", "airtime"], dict[str, str]] = {}
    refused_recipients: list[str] = []


def _check_columns(columns: list[SeedColumn]) -> list[Column]:
    """Return the columns; raise ValueError where they make no table."""
    if not columns:
        raise ValueError("columns: a table has at least one column")
    for column in columns:
        if column.type not in COLUMN_TYPES:
            raise ValueError(f"columns: {column.type!r} is not one of {', '.join(COLUMN_TYPES)}")
    if len({column.id for column in columns}) < len(columns):
        raise ValueError("columns: each id may occur once")
    return [Column(column.id, column.name, column.type, tuple(column.options)) for column in columns]


def _check_rows(sandbox: Sandbox, columns: list[Column], rows: list[SeedRow]) -> list[dict[str, Any]]:
    """Return the cells of each row as they are stored; raise ValueError where one is not valid."""
    body: Any = list.__class_getitem__(row_body(columns, sandbox.settings.number_cells))
    check: TypeAdapter[list[dict[str, Any]]] = TypeAdapter(body)
    try:
        checked = check.validate_python([{"columns": row.columns} for row in rows], strict=True)
    except ValidationError as error:
        raise ValueError(in_words(error.errors(include_url=False), "rows")) from None
    return [row["columns"] for row in checked]


def _check_outcomes(seeding: Seeding) -> None:
    for kind, outcomes in seeding.outcomes.items():
        for outcome in outcomes.values():
            if outcome not in OUTCOMES[kind]:
                raise ValueError(f"outcomes.{kind}: {outcome!r} is not one of {', '.join(OUTCOMES[kind])}")


def apply_seed(sandbox: Sandbox, seeding: Seeding) -> dict[str, int]:
    """Lay everything in and return how much; raise ValueError, having changed nothing, where something is wrong."""
    present = list(sandbox.table.columns.values())
    columns = present if seeding.columns is None else _check_columns(seeding.columns)
    rows = _check_rows(sandbox, columns, seeding.rows)
    _check_outcomes(seeding)
    try:
        with sandbox.database.transaction():
            _insert(sandbox, seeding, columns, rows)
    finally:
        state.reload(sandbox)
    sown = {name: len(getattr(seeding, name) or []) for name in type(seeding).model_fields}
    return sown | {"outcomes": sum(map(len, seeding.outcomes.values()))}


def _insert(sandbox: Sandbox, seeding: Seeding, columns: list[Column], rows: list[dict[str, Any]]) -> None:
    database = sandbox.database
    if seeding.columns is not None:
        database.empty(["contacts"])
        state.save_columns(database, sandbox.clock, columns, sandbox.clock.now())
        state.reload(sandbox)
    for template in seeding.templates:
        state.save_template(database, template.model_dump())
    for row, cells in zip(seeding.rows, rows, strict=True):
        if row.id is not None and database.row("SELECT 1 FROM contacts WHERE id = ?", [row.id]):
            raise ValueError(f"rows: there already is a row {row.id}")
        contacts.add_row(sandbox, cells, row.id)
    answers = [(one.phone, json.dumps(one.model_dump(exclude={"phone"}, exclude_none=True))) for one in seeding.lookups]
    database.many("INSERT OR REPLACE INTO seeded_lookups (phone, answer) VALUES (?, ?)", answers)
    forced: list[tuple[str, str, str]] = [
        (kind, one, outcome) for kind, each in seeding.outcomes.items() for one, outcome in each.items()
    ]
    forced += [("refused", one, "refused") for one in seeding.refused_recipients]
    database.many("INSERT OR REPLACE INTO outcomes (kind, recipient, outcome) VALUES (?, ?, ?)", forced)
