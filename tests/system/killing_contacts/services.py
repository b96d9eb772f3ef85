"""Where the list of a killed sync is: at the sandbox, or at a row service that follows other readings each round."""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Protocol

from tests.row_service import READINGS, Column, DrawnFaults, RowService, ScriptedFaults
from tests.sandbox import Sandbox
from tests.system.killing_contacts.sources import REFUSED
from tests.unit.contacts.listed import NAME, PHONE, PLAN, POINTS, listed

CONN_ID = "cpaas_default"
_EXTRA = {"default_region": "NG", "timeout": 3, "requests_per_second": 150, "max_concurrency": 8}
_WRITES = ("create_contact_row", "update_contact_row", "delete_contact_row")
_LATENCIES = ((5, 1.0), (60, 0.1))
_SANDBOX_FAULTS: tuple[dict[str, Any], ...] = (
    {"kind": "rate_limit", "params": {"retry_after": 1}, "rate": 0.005},
    {"kind": "error_500", "rate": 0.005},
    {"kind": "error_500_after", "rate": 0.005},
    {"kind": "cut_before", "rate": 0.005},
    {"kind": "cut_after", "rate": 0.005},
    {"kind": "stall_body", "params": {"seconds": 4}, "rate": 0.002},
    {"kind": "broken_json", "rate": 0.002},
)
_STORM: dict[str, Any] = {"kind": "rate_limit", "params": {"retry_after": 1}, "times": 40}
_FAULTS = (
    *("429", "429_retry_after", "429_in_body", "500_before", "500_after", "500_in_body_after", "503_before"),
    *("cut_before", "cut_after", "cut_within"),
)
_TURNED = ("patch_omitted", "patch_gone", "get_gone", "delete_gone", "delete_answer", "patch_answer", "invalid_status")


class ContactList(Protocol):
    """A contact list, started, with its faults and what it holds."""

    @property
    def connection(self) -> dict[str, Any]:
        """The Airflow connection to it, as the REST API takes it."""

    def stop(self) -> None:
        """End it."""

    def turn(self, chance: random.Random) -> str:
        """Follow other readings of the contract from now on, and return which."""

    def weather(self, chance: random.Random, *, foul: bool) -> None:
        """Have latencies, and faults if it is foul."""

    def clear_faults(self) -> None:
        """Answer without faults."""

    def writes(self) -> int:
        """Return the number of requests so far that change rows."""

    def rows(self) -> dict[str, dict[str, Any]]:
        """Return the cells that are not empty, by row id and column id."""

    def delete_by_other(self, names: Collection[str]) -> None:
        """Delete rows as another client."""


class SandboxList:
    """The list of a sandbox, a program of its own."""

    def __init__(self, log: Path) -> None:
        self._sandbox = Sandbox(log).start()

    @property
    def connection(self) -> dict[str, Any]:
        return _connection(self._sandbox.url, self._sandbox.api_key, _EXTRA)

    def stop(self) -> None:
        self._sandbox.stop()

    def turn(self, chance: random.Random) -> str:
        raise NotImplementedError("The sandbox follows the same readings in each round.")

    def weather(self, chance: random.Random, *, foul: bool) -> None:
        self.clear_faults()
        for operation in _WRITES:
            faults = [{"kind": "latency", "params": {"ms": ms}, "rate": rate} for ms, rate in _LATENCIES]
            if foul:
                faults += [*_SANDBOX_FAULTS, {**_STORM, "after": chance.randrange(50, 400)}]
            for fault in faults:
                body = {**fault, "operation": operation, "seed": chance.randrange(2**31)}
                self._sandbox.control("POST", "faults", body)

    def clear_faults(self) -> None:
        self._sandbox.control("DELETE", "faults")

    def writes(self) -> int:
        requests = self._sandbox.counters()["requests"]
        return sum(int(requests.get(operation, 0)) for operation in _WRITES)

    def rows(self) -> dict[str, dict[str, Any]]:
        return listed(self._sandbox)

    def delete_by_other(self, names: Collection[str]) -> None:
        raise NotImplementedError("Only rows of a row service are deleted by another client.")


class RowServiceList:
    """The list of a row service, which runs in this process. It refuses contacts of the plan ``REFUSED``."""

    def __init__(self) -> None:
        columns = [
            Column(NAME, "Name", "TEXT"),
            Column(PHONE, "Phone", "PHONE NUMBER"),
            Column(PLAN, "Plan", "SELECT"),
            Column(POINTS, "Points", "NUMBER"),
        ]
        self._service = RowService(columns, refused_values=[REFUSED], slow_seconds=0.06).__enter__()

    @property
    def connection(self) -> dict[str, Any]:
        clears = self._service.switches.patch_omitted == "clear"
        extra = {**_EXTRA, "row_updates": "whole" if clears else "partial"}
        return _connection(self._service.url, self._service.api_key, extra)

    def stop(self) -> None:
        self._service.__exit__()

    def turn(self, chance: random.Random) -> str:
        readings = {name: chance.choice(READINGS[name]) for name in _TURNED}
        self._service.switch(**readings)
        return f", {', '.join(f'{name} {reading}' for name, reading in readings.items())}"

    def weather(self, chance: random.Random, *, foul: bool) -> None:
        kinds = ["slow"] * 80 + [*_FAULTS] * foul
        self._service.faults = DrawnFaults(chance.randrange(2**31), share=0.25, kinds=kinds)

    def clear_faults(self) -> None:
        self._service.faults = ScriptedFaults(())

    def writes(self) -> int:
        with self._service.locked():
            return sum(method != "GET" for method, _ in self._service.arrived)

    def rows(self) -> dict[str, dict[str, Any]]:
        with self._service.locked() as table:
            return {
                row.id: {column: cell for column, cell in row.columns.items() if cell not in (None, "")}
                for row in table.rows.values()
            }

    def delete_by_other(self, names: Collection[str]) -> None:
        with self._service.locked() as table:
            for row in [row for row in table.rows.values() if row.columns.get(NAME) in names]:
                table.delete(row.id, by="other")


def _connection(url: str, api_key: str, extra: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "connection_id": CONN_ID,
        "conn_type": "cpaas",
        "host": url,
        "password": api_key,
        "extra": json.dumps(extra),
    }
