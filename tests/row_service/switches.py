"""What contract.md does not show about the contact list, each with every reading that the contract allows."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, get_args, get_type_hints

#: How a request for a row that does not exist is answered. "200_..." is an error body under HTTP 200 (section 7).
#: `items` has an item of type "not_found", `missing` of the documented type, `untyped` of none, `bare` has no list.
GoneAnswer = Literal[
    "404_items",
    "404_bare",
    "404_empty",
    "400_items",
    "400_missing",
    "400_bare",
    "400_empty",
    "410_items",
    "410_bare",
    "410_empty",
    "200_items",
    "200_missing",
    "200_untyped",
    "200_empty",
    "200_bare",
]


@dataclass(frozen=True)
class Switches:
    """The readings a `RowService` follows. The defaults are the most plausible readings.

    - `patch_omitted`: columns that a PATCH does not send keep their cells, or are cleared (4.12).
    - `patch_gone`, `get_gone`, `delete_gone`: answers for a row that does not exist.
      GET may also answer 200 with `row: null`, DELETE may also answer as for a row that it deleted.
    - `delete_answer`: the body of a successful DELETE (4.13).
    - `patch_answer`: `row.columns` holds the whole row or only the columns that were sent.
    - `answer_table`: whether answers about a row hold `table`, as 4.10 to 4.12 say.
    - `invalid_status`, `invalid_errors`, `error_field`: how a refused cell is answered (7). `no_body` is a 400 always.
    - `validation`: of cells by the type of their column (2.5).
    - `unknown_column`: what happens to a column id that the table does not have.
    - `empty_cell`: how `null` and `""` in POST and PATCH are stored, or that they are refused.
    - `required_column`: whether a column with `required` must be in a POST.
    - `number_form`, `date_form`, `phone_form`, `multi_form`, `empty_form`: how cells are returned.
    - `row_ids`: the form of row ids.
    - `auth`, `auth_status`, `auth_body`: what is accepted as credentials, and the answer otherwise (5).
    - `envelope`: resources are bare, or wrapped in `data`, with a status of a number or a word.
    - `post_status`, `timestamps`, `extra_fields`: shape of successful answers.
    - `table_read`: GET of the table answers the table or the listed 400 (4.9).
    """

    patch_omitted: Literal["keep", "clear"] = "keep"
    patch_gone: GoneAnswer = "404_items"
    get_gone: GoneAnswer | Literal["200_null"] = "404_items"
    delete_gone: GoneAnswer | Literal["success"] = "404_items"
    delete_answer: Literal["empty", "204", "row", "row_and_table", "message", "message_status", "wrapped"] = "empty"
    patch_answer: Literal["whole", "sent"] = "whole"
    answer_table: Literal["with", "without"] = "with"
    invalid_status: Literal[400, 200] = 400
    invalid_errors: Literal["items", "untyped", "empty", "bare", "no_body"] = "items"
    error_field: Literal["id", "name", "path"] = "id"
    validation: Literal["strict", "lenient", "none"] = "strict"
    unknown_column: Literal["refused", "ignored"] = "refused"
    empty_cell: Literal["null", "text", "refused"] = "null"
    required_column: Literal["refused", "allowed"] = "refused"
    number_form: Literal["as_sent", "text"] = "as_sent"
    date_form: Literal["as_sent", "with_time"] = "as_sent"
    phone_form: Literal["as_sent", "plus"] = "as_sent"
    multi_form: Literal["as_sent", "reversed", "comma"] = "as_sent"
    empty_form: Literal["null", "text", "omitted"] = "null"
    row_ids: Literal["text", "digits", "long", "odd"] = "text"
    auth: Literal["bearer", "raw", "none"] = "bearer"
    auth_status: Literal[401, 403] = 401
    auth_body: Literal["with", "without"] = "with"
    envelope: Literal["bare", "number", "word"] = "bare"
    post_status: Literal[200, 201] = 200
    timestamps: Literal["all", "created", "none"] = "all"
    extra_fields: Literal["without", "with"] = "without"
    table_read: Literal["answered", "refused"] = "answered"

    def __post_init__(self) -> None:
        for name, readings in READINGS.items():
            if (value := getattr(self, name)) not in readings:
                msg = f"{name} is {value!r}; the readings are {', '.join(map(repr, readings))}"
                raise ValueError(msg)


def _readings_of(hint: Any) -> tuple[Any, ...]:
    values: list[Any] = []
    for part in get_args(hint):
        values.extend(_readings_of(part) if get_args(part) else (part,))
    return tuple(values)


_HINTS = get_type_hints(Switches)
#: Every switch with all its readings.
READINGS: dict[str, tuple[Any, ...]] = {field.name: _readings_of(_HINTS[field.name]) for field in fields(Switches)}
