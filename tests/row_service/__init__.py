"""A contact list over HTTP, written from contract.md alone; each "not shown" of the contract is a switch."""

from tests.row_service.faults import FAULTS, DrawnFaults, ScriptedFaults
from tests.row_service.server import RowService
from tests.row_service.switches import READINGS, Switches
from tests.row_service.table import Change, Column, ContactTable

__all__ = [
    "FAULTS",
    "READINGS",
    "Change",
    "Column",
    "ContactTable",
    "DrawnFaults",
    "RowService",
    "ScriptedFaults",
    "Switches",
]
