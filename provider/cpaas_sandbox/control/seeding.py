"""Seeding through the control API: templates, columns, rows, lookups and outcomes; all of it or nothing."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, TypeAdapter, ValidationError

from cpaas_sandbox.core import state
from cpaas_sandbox.core.context import Column, Sandbox
from cpaas_sandbox.core.validation import EMAIL, MSISDN, EmailAddress, Msisdn, Written, in_words, one_of
from cpaas_sandbox.reports.outcomes import OUTCOMES
from cpaas_sandbox.service.handlers import contacts
from cpaas_sandbox.service.handlers.otp import OUTCOMES as OTP_OUTCOMES
from cpaas_sandbox.service.requests import COLUMN_TYPES, row_body

Text = Annotated[str, Field(min_length=1, max_length=200)]
_NUMBER_OR_ADDRESS = Written(
    f"{MSISDN}|{EMAIL}",
    "must be a number in international format, 7 to 15 digits without plus sign, or an email address",
    "2348030000001",
)
Recipient = Annotated[str, _NUMBER_OR_ADDRESS]


class _Strict(BaseModel, extra="forbid", strict=True):
    pass


class Template(_Strict):
    """A template, and the channel whose requests may name it."""

    id: Text
    channel: Literal["sms", "email", "any"] = "any"
    subject: str | None = None
    content: Annotated[str, Field(min_length=1)]


class SeedColumn(_Strict):
    """A column of the contact table."""

    id: Text
    name: Text
    type: Annotated[str, one_of(COLUMN_TYPES)]
    options: list[Text] = []


class SeedRow(_Strict):
    """A contact row; cells by column id."""

    id: Text | None = None
    columns: dict[str, Any]


class Lookup(_Strict):
    """The result of a phone lookup; fields left out are derived from the number, and a null leaves the field out."""

    phone: Msisdn
    operator: str | None = None
    country: str | None = None
    ported: bool | None = None
    dnd: bool | None = None


class Outcomes(_Strict):
    """Outcomes by kind of message and recipient."""

    sms: dict[Msisdn, Annotated[str, one_of(OUTCOMES["sms"])]] = {}
    email: dict[EmailAddress, Annotated[str, one_of(OUTCOMES["email"])]] = {}
    airtime: dict[Msisdn, Annotated[str, one_of(OUTCOMES["airtime"])]] = {}
    otp: dict[Msisdn, Annotated[str, one_of(OTP_OUTCOMES)]] = {}


def _check_ids(columns: list[SeedColumn]) -> list[SeedColumn]:
    if len({column.id for column in columns}) < len(columns):
        raise ValueError("each id may occur once")
    return columns


class Seeding(_Strict):
    """The data to seed. `columns` replaces the table's columns and deletes its rows; the other fields add."""

    templates: list[Template] = []
    columns: Annotated[list[SeedColumn], Field(min_length=1), AfterValidator(_check_ids)] | None = None
    rows: list[SeedRow] = []
    lookups: list[Lookup] = []
    outcomes: Outcomes = Outcomes()
    refused_recipients: list[Recipient] = []


def _check_rows(sandbox: Sandbox, columns: list[Column], rows: list[SeedRow]) -> list[dict[str, Any]]:
    """Return the cells of each row in their stored form; raise ValueError naming every cell that is not valid."""
    body: Any = list.__class_getitem__(row_body(columns, sandbox.settings.number_cells))
    check: TypeAdapter[list[dict[str, Any]]] = TypeAdapter(body)
    try:
        checked = check.validate_python([{"columns": row.columns} for row in rows], strict=True)
    except ValidationError as error:
        raise ValueError(in_words(error, "rows")) from None
    return [row["columns"] for row in checked]


def apply_seed(sandbox: Sandbox, seeding: Seeding) -> dict[str, int]:
    """Store everything and return the counts; raise ValueError, with nothing stored, if anything is not valid."""
    columns = list(sandbox.table.columns.values())
    if seeding.columns is not None:
        columns = [Column(column.id, column.name, column.type, tuple(column.options)) for column in seeding.columns]
    rows = _check_rows(sandbox, columns, seeding.rows)
    try:
        with sandbox.database.transaction():
            _insert(sandbox, seeding, columns, rows)
    finally:
        state.reload(sandbox)
    counts = {name: len(items or []) for name, items in seeding if name != "outcomes"}
    return counts | {"outcomes": sum(len(outcomes) for _, outcomes in seeding.outcomes)}


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
    results = [(item.phone, item.model_dump_json(exclude={"phone"}, exclude_unset=True)) for item in seeding.lookups]
    database.many("INSERT OR REPLACE INTO seeded_lookups (phone, answer) VALUES (?, ?)", results)
    refused = dict.fromkeys(seeding.refused_recipients, "refused")
    by_kind = [*seeding.outcomes, ("refused", refused)]
    rows_of_outcomes = [(kind, recipient, outcome) for kind, each in by_kind for recipient, outcome in each.items()]
    database.many("INSERT OR REPLACE INTO outcomes (kind, recipient, outcome) VALUES (?, ?, ?)", rows_of_outcomes)
