"""The commands ``airflow cpaas campaigns`` and ``deliveries``. Every ``airflow`` command imports this module."""

from __future__ import annotations

from airflow.cli.cli_config import ARG_OUTPUT, ARG_VERBOSE, Arg

from cpaas_provider.cli.arguments import command, number, switch

_OUTCOMES = ("in_flight", "undelivered", "delivered", "bounced", "opened", "clicked")
_FILTERS = (
    Arg(("--conn-id",), "Only this connection (default: all)"),
    Arg(("--dag-id",), "Only this Dag. Single sends of the command line have the Dag id `airflow cpaas`"),
    Arg(("--run-id",), "Only this Dag run"),
    Arg(("--since",), "From this date or time on, in ISO 8601. UTC, unless it has an offset", metavar="TIME"),
    Arg(("--until",), "Before this date or time", metavar="TIME"),
    number("--limit", 100, "Show at most this many, newest first"),
)
_SINGLE_MESSAGES = switch("--single-messages", "With requests that belong to no campaign, such as single sends")
_REFERENCE = Arg(("reference",), "Reference of the campaign, or of one of its requests")
_ANY_REFERENCE = Arg(
    ("reference",), "Reference of a campaign or request, or the service's id of a message (default: all)", nargs="?"
)
_OUTCOME = Arg(
    ("--outcome",),
    "Only recipients with this delivery status",
    choices=_OUTCOMES,
    metavar=f"({', '.join(_OUTCOMES)})",
)

CAMPAIGN_COMMANDS = (
    command(
        "list",
        "deliveries.show.cpaas_campaigns_list",
        (*_FILTERS, _SINGLE_MESSAGES, ARG_OUTPUT, ARG_VERBOSE),
        "List campaigns and their delivery counts",
        "List campaigns, newest first, with the number of recipients accepted, delivered and not delivered. Delivery "
        "is counted where the connection has callback_url. Single sends are left out without --single-messages.",
    ),
    command(
        "show",
        "deliveries.show.cpaas_campaigns_show",
        (_REFERENCE, ARG_OUTPUT, ARG_VERBOSE),
        "Show a campaign: counts, times, and the reasons that were reported",
    ),
)
DELIVERY_COMMANDS = (
    command(
        "show",
        "deliveries.show.cpaas_deliveries_show",
        (_ANY_REFERENCE, *_FILTERS, _OUTCOME, ARG_OUTPUT, ARG_VERBOSE),
        "Show the delivery status of recipients, masked",
        "Show the delivery status of each recipient that was reported, newest first. Phone numbers and email addresses "
        "are masked.",
    ),
)
