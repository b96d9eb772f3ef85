"""The sandbox against its own OpenAPI document: schemathesis with its default checks finds nothing.

Schemathesis drives a real server as its command line does: examples, coverage, fuzzing and stateful phases, all
default checks, seeded so that a run can be repeated.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

from cpaas_sandbox.core.context import Options
from cpaas_sandbox.service.operations import NAMES, OPERATIONS
from tests.cpaas_sandbox.conftest import ADA, Harness, running

KEY = "sk_test_contract"
TORTURE = bool(os.environ.get("TORTURE"))
SAMPLE = ("--max-examples=300",) if TORTURE else ("--seed=20260131", "--max-examples=5", "--generation-deterministic")

# The service as it is by default, and turned to the other side in all its blanks.
MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "otherwise": {
        "envelope": True,
        "auth_scheme": "either",
        "unknown_fields": "reject",
        "delete_body": "record",
        "revoked_otps": "gone",
        "otp_status_mode": "sent",
        "number_cells": "number_or_string",
    },
    "raw key": {"auth_scheme": "raw", "delete_body": "empty"},
}


@pytest.fixture(params=MODES)
def sandbox(request: pytest.FixtureRequest) -> Iterator[tuple[Harness, str]]:
    """A seeded sandbox in each mode, and the Authorization header it wants."""
    settings = MODES[request.param]
    with running(Options(KEY)) as url:
        harness = Harness(url)
        harness.settings(**settings)
        harness.control(
            "POST",
            "seed",
            {
                "templates": [{"id": "tpl_any", "content": "Hello {name}"}],
                "rows": [{"id": "row-1", "columns": {}}],
                "lookups": [{"phone": ADA, "operator": "MTN", "country": "NG", "ported": False, "dnd": True}],
            },
        )
        yield harness, KEY if settings.get("auth_scheme") == "raw" else f"Bearer {KEY}"


# The two whole modes, which between them have every setting but the scheme and the empty body of the third.
@pytest.mark.parametrize("sandbox", MODES if TORTURE else ["default", "otherwise"], indirect=True)
def test_schemathesis_finds_no_failure(sandbox: tuple[Harness, str], tmp_path: Path) -> None:
    harness, authorization = sandbox
    command = [
        str(Path(sys.executable).with_name("schemathesis")),
        "run",
        f"{harness.url}/openapi.json",
        f"--header=Authorization: {authorization}",
        # Without it, a POST is refused before its path is looked at, and 405 is what schemathesis wants to see.
        "--header=Content-Type: application/json",
        *SAMPLE,
        "--no-color",
    ]
    environment = {**os.environ, "NO_PROXY": "127.0.0.1", "HYPOTHESIS_STORAGE_DIRECTORY": str(tmp_path / "hypothesis")}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=550, check=False
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    # it did test: every phase, every operation, and the service accepted some of each
    assert re.search(r"Selected: 15/15\s+Tested: 15", done.stdout), done.stdout
    for phase in ("Examples", "Coverage", "Fuzzing", "Stateful"):
        assert re.search(rf"✅ {phase}", done.stdout), done.stdout
    accepted = set(harness.counters()["accepted"])
    assert accepted >= {one.name for one in OPERATIONS if not one.by_id} - {"verify_otp"}  # nobody guesses a code
    assert accepted & {one.name for one in OPERATIONS if one.by_id}


def test_openapi_document_is_complete(sandbox: tuple[Harness, str]) -> None:
    harness, _ = sandbox
    document = httpx.get(f"{harness.url}/openapi.json", trust_env=False).json()
    assert document["openapi"] == "3.1.0"
    operations = {one["operationId"] for path in document["paths"].values() for one in path.values()}
    assert operations == {*NAMES, "get_contact_row_alias"}
    for path in document["paths"].values():
        for one in path.values():
            errors = {status for status in one["responses"] if status >= "400"}
            assert {"401", "429", "503"} <= errors
            for status in errors:
                shown = one["responses"][status]["content"]["application/json"]["schema"]
                assert shown == {"$ref": "#/components/schemas/Error"}
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def test_every_contact_column_has_its_schema(sandbox: tuple[Harness, str]) -> None:
    harness, _ = sandbox

    def described() -> dict[str, Any]:
        schemas = httpx.get(f"{harness.url}/openapi.json", trust_env=False).json()["components"]["schemas"]
        update, create = (schemas[f"{verb}ContactRowRequest"]["properties"]["columns"] for verb in ("Update", "Create"))
        assert update == create == {"$ref": "#/components/schemas/Columns"}
        return {column["title"]: column["description"] for column in schemas["Columns"]["properties"].values()}

    columns = harness.control("GET", "table")["columns"]
    assert described() == {column["name"]: column["type"] for column in columns}
    harness.control("POST", "seed", {"columns": [{"id": "only", "name": "Only", "type": "DATE"}]})
    assert described() == {"Only": "DATE"}
