"""Checks of the receiver: its public URL, as seen from this machine, and the database it stores reports in."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

from cpaas_provider.cli.doctor.report import NO_CONNECTION, Findings, failed, ok, skipped, warning
from cpaas_provider.database.database import Database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.delivery.callbacks.receiver_check import (
    HandshakeRefusedError,
    ReceiverClient,
    ReceiverUnreachableError,
)
from cpaas_provider.hooks._receiver import receiver_conn_id
from cpaas_provider.hooks.connection import CpaasConnection

_URL = "callback URL"
_RECEIVER = "receiver"


def check_callback_url(connection: CpaasConnection | None) -> Findings:
    """Check that the service could reach the callback URL, as far as this machine can see."""
    if connection is None:
        yield skipped(_URL, NO_CONNECTION)
        return
    if connection.callback_url is None:
        yield skipped(_URL, "The connection has no callback_url, so delivery is not tracked by it.")
        return
    parts = urlsplit(connection.callback_url)
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    try:
        addresses = _addresses(parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))
    except (OSError, ValueError):
        yield failed(_URL, f"The host of {shown} cannot be resolved.", "Correct callback_url, or its DNS entry.")
        return
    if any(one.is_loopback for one in addresses):
        service = _quietly(urlsplit(connection.base_url).hostname)
        if service and all(one.is_loopback for one in service):
            yield ok(_URL, f"{shown} is on this machine, and so is the service")
        else:
            yield failed(
                _URL, f"{shown} leads to this machine itself, where the service cannot reach it.", "Use a public host."
            )
        return
    if all(one.is_private for one in addresses):
        yield warning(
            _URL,
            f"{shown} has a private address on this machine.",
            "See that its public DNS entry has a public address, or the service cannot reach it.",
        )
    else:
        yield ok(_URL, shown)
    if parts.scheme != "https":
        yield warning(_URL, "callback_url is plain http. Reports and callback tokens are readable.", "Use https.")


def check_receiver(connection: CpaasConnection | None, conn_id: str, database: Database | None) -> Findings:
    """Check that the receiver responds at its public URL, accepts our tokens, and has the same database."""
    if connection is None or connection.callback_url is None:
        yield skipped(_RECEIVER, "There is no callback_url to ask.")
        return
    if database is None:
        yield skipped(_RECEIVER, "There is no usable database to compare with.")
        return
    secret = connection.hash_secrets[0]
    client = ReceiverClient(connection.callback_url, receiver_conn_id(conn_id), secret, connection.options)
    try:
        client.check(database.identity, database.redacted_url)
    except DatabaseError as error:
        yield failed(_RECEIVER, str(error), "Set [cpaas] database to PostgreSQL or SQLite.")
    except HandshakeRefusedError as error:
        yield failed(_RECEIVER, str(error), "Tasks send nothing with this connection until then.")
    except ReceiverUnreachableError as error:
        yield failed(
            _RECEIVER,
            str(error),
            "Start Airflow's API server or `airflow cpaas receiver`. See that this URL leads to it.",
        )
    else:
        yield ok(_RECEIVER, "responds at callback_url, and has the same database")


Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _addresses(host: str, port: int) -> list[Address]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]


def _quietly(host: str | None) -> list[Address]:
    try:
        return _addresses(host or "", 443)
    except (OSError, ValueError):
        return []
