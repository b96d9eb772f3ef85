"""What README says. Its programs and links are checked with those of the documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", ["make demo", "make test", "airflow cpaas ping", "cpaas-sandbox --port"])
def test_the_commands_are_named(command: str) -> None:
    assert command in README


@pytest.mark.parametrize(
    "words",
    [
        "A request of a try that Airflow has given up for dead (a worker cut off from the network) may still arrive",
        "The state goes with the DAG run",
        "`airflow db clean` forget what was sent",
        "`[state_store] clear_on_success`",
    ],
)
def test_what_is_beyond_us_is_said(words: str) -> None:
    assert words in " ".join(README.split())
