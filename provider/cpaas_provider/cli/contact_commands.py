"""The commands and options of ``airflow cpaas contacts``. Every ``airflow`` command imports this module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow.cli.cli_config import ARG_OUTPUT, ARG_VERBOSE, ARG_YES, ActionCommand, Arg, positive_int

from cpaas_provider.provider_info import DEFAULT_CONN_ID

_CONN_ID = Arg(
    ("--conn-id",), default=DEFAULT_CONN_ID, help="Connection that leads to the contact list (default: %(default)s)"
)
_MAP = Arg(
    ("--map",),
    dest="map_name",
    default="default",
    metavar="MAP",
    help="Name of the key map, as map_name of the operator (default: %(default)s)",
)
_ANY_CONN_ID = Arg(("--conn-id",), help="Only maps of this connection (default: all)")
_ANY_MAP = Arg(("--map",), dest="map_name", metavar="MAP", help="Only maps of this name (default: all)")
_LIMIT = Arg(
    ("--limit",),
    type=positive_int(allow_zero=False),
    default=100,
    help="Show at most this number of unknown creations of each map (default: %(default)s)",
)


def contact_commands(command: Callable[[str], Callable[..., Any]]) -> tuple[ActionCommand, ...]:
    """Return the commands.

    :param command: returns a command that is imported when it runs, from the path of its function
    """
    return (
        ActionCommand(
            name="status",
            help="Show key maps: rows by state, leases, unknown creations",
            description=(
                "Show the key maps of contact lists: how many rows are in which state, which tasks hold a lease, the "
                "cursor and the key columns, and the creations whose outcome is unknown. Nothing of a contact is shown."
            ),
            func=command("cpaas_provider.cli.contacts.cpaas_contacts_status"),
            args=(_ANY_CONN_ID, _ANY_MAP, _LIMIT, ARG_OUTPUT, ARG_VERBOSE),
        ),
        ActionCommand(
            name="forget-map",
            help="Remove a key map; the contact list retains its rows",
            description=(
                "Remove a key map with all its entries. The contact list retains its rows, and the provider no longer "
                "knows which of them belongs to which key. The next sync creates every row of its source again. Export "
                "the map first. Refused while a task syncs the list."
            ),
            func=command("cpaas_provider.cli.contacts.cpaas_contacts_forget_map"),
            args=(_CONN_ID, _MAP, ARG_YES, ARG_VERBOSE),
        ),
    )
