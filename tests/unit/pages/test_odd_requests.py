"""Requests that nobody makes by hand: each is answered by a page or refused, and never fails."""

from __future__ import annotations

from urllib.parse import quote

from fastapi.testclient import TestClient

from cpaas_provider.database.database import Database
from tests.unit.pages.recorded import campaign

NASTY = [
    "%00", "%ff", "%ed%a0%80", "%e2%80%ae", "%0d%0aSet-Cookie:a=b", "-1", "0", "9" * 400, "1e9", "%2B1", "٣",
    "0001-01-01", "9999-12-31", "9999-12-31T23:59:59.999999", "0001-01-01T00:00:00%2B23:59~x", "9999-12-31~x",
    "0001-01-01~x", "2026-05-01T12:00:00-23:59~" + "x" * 300, "2026-W01-1", "20260501", "2026-02-30", "~",
    "2026-05-01~", "nan", "x" * 501, "<script>alert(1)</script>", "'%22><svg onload=alert(1)>", "{{7*7}}",
    "..%2f..%2f", "%F0%9F%98%80", "a&conn_id=b", "a&days=1&days=2&first=&first=x",
    "9999-12-31T23:59:59.999999~%F0%9F%98%80", "2026-05-01 12:00:00~x", "10000-01-01", "-0001-01-01",
]  # fmt: skip
PARAMETERS = {
    "campaigns": ("conn_id", "dag_id", "first", "last", "before"),
    "over-time": ("conn_id", "dag_id", "first", "last", "before"),
    "contact-syncs": ("conn_id", "dag_id", "first", "last", "before"),
    "passcodes": ("days",),
    "airtime": ("days", "before"),
    "reports": ("x",),
    "search": ("q",),
    "deliveries": ("campaign",),
}


def test_odd_parameters_never_cause_a_server_error(reader: TestClient, database: Database) -> None:
    campaign(database, "spring")
    asked = [f"/{path}?{name}={value}" for path in PARAMETERS for name in PARAMETERS[path] for value in NASTY]
    asked += [f"/{path}/{quote(value, safe='%')}" for path in ("campaigns", "static") for value in NASTY]
    for one in asked:
        answer = reader.get(one)
        assert answer.status_code in (200, 404, 422), (one, answer.status_code)
        assert "<script>alert" not in answer.text
        assert "<svg onload" not in answer.text


def test_other_methods_are_refused(reader: TestClient) -> None:
    for path in (*PARAMETERS, "campaigns/spring", "", "static/pages.js"):
        for method in ("HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"):
            if (path, method) != ("search", "POST"):
                assert reader.request(method, f"/{path}").status_code == 405
