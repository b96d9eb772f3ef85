"""Calls of a sandbox: its control API, and the service itself as the customer's app calls it."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import urlencode, urlsplit

from cpaas_sandbox.pytest_plugin.errors import SandboxError

_TIMEOUT = 30.0
_PAGE = 1000


class Control:
    """Calls one sandbox. Each call has a connection of its own, so no state is left between tests.

    :param url: the base URL of the sandbox
    :param api_key: the key for calls of the service; the control API needs none
    """

    def __init__(self, url: str, api_key: str) -> None:
        self._address = urlsplit(url).netloc
        self._api_key = api_key

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Call the control API and return the JSON of its response.

        :param path: the path after ``/_control/``
        :raises SandboxError: when the sandbox refuses the call; the error has the sandbox's reason
        """
        status, answer = self._request(method, f"/_control/{path.lstrip('/')}", body)
        if status >= http.client.BAD_REQUEST:
            reason = answer.get("message") if isinstance(answer, dict) else answer
            raise SandboxError(f"The sandbox refused {method} {path}: {reason}")
        return answer

    def call_service(self, method: str, path: str, body: Any = None) -> int:
        """Call an operation of the service and return the HTTP status."""
        scheme = "" if self.call("GET", "settings")["auth_scheme"] == "raw" else "Bearer "
        return self._request(method, path, body, scheme)[0]

    def read_inbox(self, view: str, **filters: str | None) -> list[dict[str, Any]]:
        """Return all items of a view of the inbox, oldest first."""
        given = {name: value for name, value in filters.items() if value is not None}
        items: list[dict[str, Any]] = []
        while True:
            query = urlencode({**given, "limit": _PAGE, "offset": len(items)})
            page = self.call("GET", f"inbox/{view}?{query}")
            items += page["items"]
            if len(items) >= page["total"] or not page["items"]:
                return items[::-1]

    def _request(self, method: str, path: str, body: Any, scheme: str = "Bearer ") -> tuple[int, Any]:
        connection = http.client.HTTPConnection(self._address, timeout=_TIMEOUT)
        headers = {"Content-Type": "application/json", "Authorization": f"{scheme}{self._api_key}"}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            raw = response.read()
        finally:
            connection.close()
        try:
            return response.status, json.loads(raw) if raw else None
        except ValueError:
            return response.status, raw.decode(errors="replace")
