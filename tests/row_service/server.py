"""The service over HTTP: threads of the standard library, loopback only, a port that the system picks."""

from __future__ import annotations

import json
import socket
import struct
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from tests.row_service import answers
from tests.row_service.answers import Answer, Refused
from tests.row_service.control import Control
from tests.row_service.faults import OTHER, Faults, ScriptedFaults
from tests.row_service.switches import Switches
from tests.row_service.table import Column, ContactTable, cell_error


class RowService:
    """A contact list that a client reads and changes over HTTP; a context manager.

    Tests read and change `table` within `locked()`, as another client would. `switches` and `faults` may be
    replaced at any moment.

    :param refused_values: a row with a cell of such a value is refused, as an invalid cell is.
    :param broken_values: a request with a cell of such a value is answered 500 and never carried out.
    :param kept_rows: ids of rows whose deletion is refused.
    :param slow_seconds: how long a slow answer waits within its body.
    """

    def __init__(
        self,
        columns: Iterable[Column] = (),
        switches: Switches | None = None,
        *,
        api_key: str = "row-service-key",
        faults: Faults | None = None,
        refused_values: Iterable[Any] = (),
        broken_values: Iterable[Any] = (),
        kept_rows: Iterable[str] = (),
        slow_seconds: float = 0.02,
        port: int = 0,
    ) -> None:
        self.table = ContactTable(columns)
        self.switches = switches or Switches()
        self.api_key = api_key
        self.faults: Faults = faults or ScriptedFaults(())
        self.refused_values = list(refused_values)
        self.broken_values = list(broken_values)
        self.kept_rows = set(kept_rows)
        self.slow_seconds = slow_seconds
        self.arrived: list[tuple[str, str | None]] = []
        """Method and row id of each request for rows that was read, carried out or not."""
        self.requests = 0
        self.errors: list[BaseException | None] = []
        self._lock = threading.RLock()
        self._control = Control(self)
        self._http = _Server(("127.0.0.1", port), _Handler)
        self._http.service = self
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    @property
    def port(self) -> int:
        return int(self._http.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()
        if self.errors:
            msg = f"the service had {len(self.errors)} errors of its own"
            raise AssertionError(msg) from self.errors[0]

    def replace_table(self, table: ContactTable) -> None:
        """Serve another table from now on, without values and rows that are treated in a way of their own."""
        with self._lock:
            self.table = table
            self.faults = ScriptedFaults(())
            self.refused_values, self.broken_values, self.kept_rows = [], [], set()
            self.arrived.clear()

    def switch(self, **readings: Any) -> None:
        """Change switches; the others stay as they are."""
        self.switches = replace(self.switches, **readings)

    @contextmanager
    def locked(self) -> Iterator[ContactTable]:
        """The table, with no request carried out meanwhile."""
        with self._lock:
            yield self.table

    def answer(self, method: str, path: str, authorization: str | None, body: bytes) -> Answer:
        """Carry out a request; called by threads of the server."""
        with self._lock:
            self.requests += 1
            if path.startswith("/_control/"):
                return self._control.answer(method, path, body)
            try:
                self._check_credentials(authorization)
                return self._carry_out(method, urlsplit(path).path, body)
            except Refused as refused:
                return refused.answer

    def mix_up(self, answer: Answer, fault: str) -> Answer:
        """The answer to a creation, with another row of the table or with its id, if there is one."""
        with self._lock:
            rows = list(self.table.rows.values())
            if answer.status >= 400 or len(rows) < 2:
                return answer
            row = rows[0] if fault == "other_row" else replace(rows[-1], id=rows[0].id)
            return answers.success(
                self.switches, answers.row_and_table(self.switches, self.table, row), status=answer.status
            )

    def _check_credentials(self, authorization: str | None) -> None:
        switches = self.switches
        accepted = {"bearer": f"Bearer {self.api_key}", "raw": self.api_key, "none": authorization}[switches.auth]
        if authorization == accepted:
            return
        if switches.auth_body == "without":
            raise Refused(Answer(switches.auth_status))
        raise Refused(answers.error(switches.auth_status, "Invalid credentials"))

    def _carry_out(self, method: str, path: str, body: bytes) -> Answer:
        switches, table = self.switches, self.table
        parts = path.split("/")[1:]
        if parts[:2] != ["lists", "contact"] or len(parts) > 4:
            return answers.error(404, "No such path")
        row_id = unquote(parts[3]) if len(parts) == 4 else None
        self.arrived.append((method, row_id))
        match method, parts[2] if len(parts) > 2 else None, row_id:
            case "GET", None, None:
                if switches.table_read == "refused":
                    return answers.error(400, "The contact list cannot be read")
                return answers.success(switches, answers.table_body(switches, table))
            case "GET", "row", str():
                if (row := table.rows.get(row_id)) is not None:
                    return answers.success(switches, answers.row_and_table(switches, table, row))
                if switches.get_gone != "200_null":
                    return answers.gone(switches.get_gone)
                return answers.success(switches, {"row": None, "table": answers.table_body(switches, table)})
            case "POST", "rows", None:
                sent = self._columns_of(body)
                cells = self._checked(sent, creation=True)
                row = table.create(table.new_row_id(switches.row_ids), cells, sent)
                return answers.success(
                    switches, answers.row_and_table(switches, table, row), status=switches.post_status
                )
            case "PATCH", "rows", str():
                sent = self._columns_of(body)
                if row_id not in table.rows:
                    return answers.gone(switches.patch_gone)
                cells = self._checked(sent, creation=False)
                row = table.update(row_id, cells, sent, clear_omitted=switches.patch_omitted == "clear")
                only = set(sent) if switches.patch_answer == "sent" else None
                return answers.success(switches, answers.row_and_table(switches, table, row, only))
            case "DELETE", "rows", str():
                if row_id in self.kept_rows and row_id in table.rows:
                    return answers.invalid(switches, [("row_id", "Row must not be deleted", "protected")])
                if row_id in table.rows:
                    return answers.deleted(switches, table, table.delete(row_id))
                if switches.delete_gone == "success":
                    return answers.deleted(switches, table, None)
                return answers.gone(switches.delete_gone)
        return answers.error(405, "Method not allowed")

    def _columns_of(self, body: bytes) -> dict[str, Any]:
        try:
            columns = json.loads(body)["columns"]
        except (ValueError, KeyError, TypeError):
            columns = None
        if not isinstance(columns, dict):
            missing = [{"field": "columns", "message": "Field required", "type": "missing"}]
            raise Refused(answers.error(400, "Invalid request", missing))
        return columns

    def _checked(self, sent: dict[str, Any], *, creation: bool) -> dict[str, Any]:
        """The cells to store, or the answer that refuses them."""
        switches, cells = self.switches, dict[str, Any]()
        problems: list[tuple[Column | str, str, str]] = []
        for column_id, value in sent.items():
            if value in self.broken_values:
                raise Refused(answers.error(500, "Internal error"))
            column = self.table.columns.get(column_id)
            if column is None:
                if switches.unknown_column == "refused":
                    problems.append((column_id, "No such column", "unknown"))
            elif value is None or value == "" or value == []:
                if switches.empty_cell == "refused":
                    problems.append((column, "Must not be empty", "empty"))
                cells[column_id] = None if switches.empty_cell == "null" else ""
            elif value in self.refused_values:
                problems.append((column, "Value is refused", "value"))
            elif (message := cell_error(column, value, switches.validation)) is not None:
                problems.append((column, message, "invalid"))
            else:
                cells[column_id] = value
        if creation and switches.required_column == "refused":
            problems.extend(
                (column, "Field required", "missing")
                for column in self.table.columns.values()
                if column.required and column.id not in sent
            )
        if problems:
            raise Refused(answers.invalid(switches, problems))
        return cells


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    service: RowService

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Record an error of the service; a client that goes away within an answer is none."""
        if not isinstance(problem := sys.exception(), OSError):
            self.service.errors.append(problem)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Server

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        service = self.server.service
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = None if self.path.startswith("/_control/") else service.faults.draw(self.command, self.path, body)
        if fault in ("cut_before", "429", "429_retry_after", "429_in_body") or (fault or "").endswith("_before"):
            self._send_fault(fault or "")
            return
        answer = service.answer(self.command, self.path, self.headers.get("Authorization"), body)
        if fault in OTHER:
            self._send(service.mix_up(answer, fault))
        elif fault in ("cut_within", "slow"):
            self._send(answer, fault)
        elif fault is not None:
            self._send_fault(fault)
        else:
            self._send(answer)

    do_POST = do_PATCH = do_DELETE = do_PUT = do_GET  # noqa: N815 - the names that http.server calls

    def _send_fault(self, fault: str) -> None:
        if fault.startswith("cut"):
            self._cut()
            return
        status = int(fault[:3])
        message = "Too many requests" if status == 429 else "Internal error"
        answer = answers.error(200 if "in_body" in fault else status, message, in_body=status)
        if fault == "429_retry_after":
            answer = Answer(answer.status, answer.body, (*answer.headers, ("Retry-After", "0")))
        self._send(answer)

    def _send(self, answer: Answer, fault: str | None = None) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        if answer.status != 204:
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if fault is None or not answer.body:
            self.wfile.write(answer.body)
            self.wfile.flush()
            return
        half = len(answer.body) // 2
        self.wfile.write(answer.body[:half])
        self.wfile.flush()
        if fault == "cut_within":
            self._cut()
            return
        threading.Event().wait(self.server.service.slow_seconds)
        self.wfile.write(answer.body[half:])
        self.wfile.flush()

    def _cut(self) -> None:
        self.close_connection = True
        # Closing with SO_LINGER of zero sends a reset, as a peer that died does.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
