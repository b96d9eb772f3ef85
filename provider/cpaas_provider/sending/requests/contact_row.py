"""One row of the contact list that is added once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self

from msgspec.structs import replace

from cpaas_provider.api import operations
from cpaas_provider.sending.requests.request import SendSettings, SingleRequest, latest_result
from cpaas_provider.sending.spec import RequestResult, SendSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cpaas_provider.api.core import Call
    from cpaas_provider.api.models.contacts import ContactRowRecord
    from cpaas_provider.sending.spec import Client, OutcomeProbe, SendOutcome


class Cells(Protocol):
    """The cells of a row, which the contacts package writes."""

    @property
    def columns(self) -> Mapping[str, Any]:
        """The cells by column name."""

    @property
    def empty_cell_value(self) -> str:
        """How an empty cell is sent."""

    async def encode(self, client: Client) -> dict[str, Any]:
        """Return the cells by column id, checked against the table as it is now."""


class RowSpec(SendSpec, frozen=True, kw_only=True):
    """One row to add, checked against the table before its intent is recorded.

    :param encoded: the cells by column id; ``None`` before the table is read
    """

    cells: Cells
    encoded: Mapping[str, Any] | None = None

    async def prepared(self, client: Client) -> Self:
        """Return it with its cells by column id, checked against the table as it is now."""
        return replace(self, encoded=await self.cells.encode(client))

    def build_call(self, recipients: Sequence[str], reference: str, callback_url: str | None) -> Call[Any]:
        """Return the creation."""
        return operations.create_contact_row(self.encoded or {})

    def read_result(self, response: ContactRowRecord, *, repeated: bool) -> RequestResult:
        """Return the row's id."""
        return RequestResult(response.row.id, details={"row_id": response.row.id})


class RowCreation(SingleRequest, frozen=True):
    """One row that a task instance adds, in whatever try."""

    cells: Cells

    operation = "create_contact_row"

    def build_spec(self, connection: SendSettings, probes: Sequence[OutcomeProbe] = ()) -> SendSpec:
        """Return the one creation."""
        return RowSpec(
            operation=self.operation,
            # Before it exists a row has no name of its own: it is the task instance's row.
            recipients=("row",),
            body={"columns": self.cells.columns, "empty_cell_value": self.cells.empty_cell_value},
            cells=self.cells,
        )

    def result(self, outcome: SendOutcome) -> dict[str, Any]:
        """Return the row's id."""
        created = latest_result(outcome)
        return {"row_id": created.get("row_id", created.get("id")), "created": bool(outcome.accepted)}
