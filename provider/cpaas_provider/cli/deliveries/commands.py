"""The commands ``airflow cpaas campaigns`` and ``deliveries``. Every ``airflow`` command imports this module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow.cli.cli_config import ARG_OUTPUT, ARG_VERBOSE, ActionCommand, Arg

from cpaas_provider.cli.messages.commands import MOST_ROWS, whole_number

_OUTCOMES = ("in_flight", "undelivered", "delivered", "bounced", "opened", "clicked")
_FILTERS = (
    Arg(("--conn-id",), help="Only this connection (default: all)"),
    Arg(("--dag-id",), help="Only this Dag. Single sends of the command line have the Dag id `airflow cpaas`"),
    Arg(("--run-id",), help="Only this Dag run"),
    Arg(("--since",), metavar="TIME", help="From this date or time on, in ISO 8601. UTC, unless it has an offset"),
    Arg(("--until",), metavar="TIME", help="Before this date or time"),
    Arg(
        ("--limit",),
        type=whole_number(MOST_ROWS),
        default=100,
        help="Show at most this many, newest first (default: %(default)s)",
    ),
)
_SINGLE_MESSAGES = Arg(
    ("--single-messages",), action="store_true", help="With requests that belong to no campaign, such as single sends"
)
_REFERENCE = Arg(("reference",), help="Reference of the campaign, or of one of its requests")
_ANY_REFERENCE = Arg(
    ("reference",),
    nargs="?",
    help="Reference of a campaign or request, or the service's id of a message (default: all)",
)
_OUTCOME = Arg(
    ("--outcome",),
    choices=_OUTCOMES,
    metavar=f"({', '.join(_OUTCOMES)})",
    help="Only recipients with this delivery status",
)


def campaign_commands(command: Callable[[str], Callable[..., Any]]) -> tuple[ActionCommand, ...]:
    """Return the commands on campaigns.

    :param command: returns a command that is imported when it runs, from the path of its function
    """
    return (
        ActionCommand(
            name="list",
            help="List campaigns and their delivery counts",
            description=(
                "List campaigns, newest first, with the number of recipients accepted, delivered and not delivered. "
                "Delivery is counted where the connection has callback_url. Single sends are left out without "
                "--single-messages."
            ),
            func=command("cpaas_provider.cli.deliveries.show.cpaas_campaigns_list"),
            args=(*_FILTERS, _SINGLE_MESSAGES, ARG_OUTPUT, ARG_VERBOSE),
        ),
        ActionCommand(
            name="show",
            help="Show a campaign: counts, times, and the reasons that were reported",
            func=command("cpaas_provider.cli.deliveries.show.cpaas_campaigns_show"),
            args=(_REFERENCE, ARG_OUTPUT, ARG_VERBOSE),
        ),
    )


def delivery_commands(command: Callable[[str], Callable[..., Any]]) -> tuple[ActionCommand, ...]:
    """Return the commands on deliveries.

    :param command: as for the others
    """
    return (
        ActionCommand(
            name="show",
            help="Show the delivery status of recipients, masked",
            description=(
                "Show the delivery status of each recipient that was reported, newest first. Phone numbers and email "
                "addresses are masked."
            ),
            func=command("cpaas_provider.cli.deliveries.show.cpaas_deliveries_show"),
            args=(_ANY_REFERENCE, *_FILTERS, _OUTCOME, ARG_OUTPUT, ARG_VERBOSE),
        ),
    )
