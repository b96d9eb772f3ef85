"""Seeding through the control API: templates, columns, rows, look-ups, outcomes; all of it or nothing."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from cpaas_provider.sandbox.core import state
from cpaas_provider.sandbox.core.context import Column, Sandbox
from cpaas_provider.sandbox.core.errors import FieldError
from cpaas_provider.sandbox.core.patterns import MSISDN_PATTERN
from cpaas_provider.sandbox.reports.outcomes import OUTCOMES
from cpaas_provider.sandbox.service import requests
from cpaas_provider.sandbox.service.cells import COLUMN_TYPES, cell_schema
from cpaas_provider.sandbox.service.handlers import contacts
from cpaas_provider.sandbox.service.schema import compile_schema

Text = Annotated[str, Field(min_length=1, max_length=200)]
Number = Annotated[str, Field(pattern=MSISDN_PATTERN)]


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

    phone: Number
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


def _check_rows(sandbox: Sandbox, columns: list[Column], rows: list[SeedRow]) -> None:
    cells = {column.id: cell_schema(column, sandbox.settings["number_cells"]) for column in columns}
    check = compile_schema(requests.row_columns(cells))
    for index, row in enumerate(rows):
        errors: list[FieldError] = []
        check({"columns": row.columns}, f"rows.{index}", errors)
        if errors:
            raise ValueError("; ".join(f"{error.field}: {error.message}" for error in errors))


def _check_outcomes(seeding: Seeding) -> None:
    for kind, outcomes in seeding.outcomes.items():
        for outcome in outcomes.values():
            if outcome not in OUTCOMES[kind]:
                raise ValueError(f"outcomes.{kind}: {outcome!r} is not one of {', '.join(OUTCOMES[kind])}")


def apply_seed(sandbox: Sandbox, seeding: Seeding) -> dict[str, int]:
    """Lay everything in and return how much; raise ValueError, having changed nothing, where something is wrong."""
    present = list(sandbox.table.columns.values())
    columns = present if seeding.columns is None else _check_columns(seeding.columns)
    _check_rows(sandbox, columns, seeding.rows)
    _check_outcomes(seeding)
    try:
        with sandbox.database.transaction():
            _insert(sandbox, seeding, columns)
    finally:
        state.reload(sandbox)
    sown = {name: len(getattr(seeding, name) or []) for name in type(seeding).model_fields}
    return sown | {"outcomes": sum(map(len, seeding.outcomes.values()))}


def _insert(sandbox: Sandbox, seeding: Seeding, columns: list[Column]) -> None:
    database = sandbox.database
    if seeding.columns is not None:
        database.empty(["contacts"])
        state.save_columns(database, sandbox.clock, columns, sandbox.clock.now())
        state.reload(sandbox)
    for template in seeding.templates:
        state.save_template(database, template.model_dump())
    for row in seeding.rows:
        if row.id is not None and database.row("SELECT 1 FROM contacts WHERE id = ?", [row.id]):
            raise ValueError(f"rows: there already is a row {row.id}")
        contacts.add_row(sandbox, row.columns, row.id)
    answers = [(one.phone, json.dumps(one.model_dump(exclude={"phone"}, exclude_none=True))) for one in seeding.lookups]
    database.many("INSERT OR REPLACE INTO seeded_lookups (phone, answer) VALUES (?, ?)", answers)
    forced: list[tuple[str, str, str]] = [
        (kind, one, outcome) for kind, each in seeding.outcomes.items() for one, outcome in each.items()
    ]
    forced += [("refused", one, "refused") for one in seeding.refused_recipients]
    database.many("INSERT OR REPLACE INTO outcomes (kind, recipient, outcome) VALUES (?, ?, ?)", forced)
