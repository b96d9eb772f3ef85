"""What the receiver says of itself in OpenAPI is true: schemathesis, with all its checks, finds nothing."""

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

from cpaas_provider.database.database import Database, open_database
from tests.unit.delivery.running_receiver import Served, serving

TORTURE = bool(os.environ.get("TORTURE"))
SAMPLE = ("--max-examples=300",) if TORTURE else ("--seed=20260131", "--max-examples=5", "--generation-deterministic")
STATUSES = {"200", "404", "405", "408", "413", "415", "422", "503"}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with open_database(f"sqlite:///{tmp_path_factory.mktemp('described') / 'store.db'}") as opened:
        yield opened


@pytest.fixture(scope="module")
def served(database: Database) -> Iterator[Served]:
    with serving(database, described=True) as running:
        yield running


@pytest.fixture
def document(served: Served) -> Any:
    return httpx.get(f"{served.url}/openapi.json", trust_env=False).json()


def test_both_endpoints_and_all_their_responses_are_described(document: Any) -> None:
    callback = document["paths"]["/callback/{conn_id}/{token}"]["post"]
    webhook = document["paths"]["/webhook/{conn_id}"]["post"]
    assert set(callback["responses"]) == STATUSES | {"429"}
    assert set(webhook["responses"]) == STATUSES | {"401"}
    assert set(document["paths"]) == {"/callback/{conn_id}/{token}", "/webhook/{conn_id}", "/health"}


def test_docs_page_is_not_served(served: Served) -> None:
    assert httpx.get(f"{served.url}/docs", trust_env=False).status_code == 404


# At random, and with a token that is good, so that bodies are read too.
@pytest.mark.parametrize("known", [False, True])
def test_schemathesis_finds_no_failure(served: Served, tmp_path: Path, known: bool) -> None:
    if known:
        token = served.callback().rpartition("/")[2]
        config = f'[parameters]\n"path.conn_id" = "shop"\n"path.token" = "{token}"\n'
        (tmp_path / "schemathesis.toml").write_text(config)
    before = len(served.stored())
    schemathesis = str(Path(sys.executable).with_name("schemathesis"))
    command = [schemathesis, "run", f"{served.url}/openapi.json", *SAMPLE, "--no-color"]
    environment = {**os.environ, "NO_PROXY": "127.0.0.1", "HYPOTHESIS_STORAGE_DIRECTORY": str(tmp_path / "hypothesis")}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=550, check=False
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert re.search(r"Selected: 3/3\s+Tested: 3", done.stdout), done.stdout
    assert (len(served.stored()) > before) == known
