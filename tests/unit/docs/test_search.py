"""The site's search finds the entry of every error message: its own script, run by Node.js.

``test_site.py`` does the same in a browser, on the built site, for a few messages.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.docs import DOCS

from cpaas_docs import messages  # isort: skip

NODE = shutil.which("node")
SCRIPT = DOCS / "_static" / "messages.js"

pytestmark = pytest.mark.skipif(NODE is None, reason="no Node.js on this machine")


def links(queries: list[str]) -> list[list[str]]:
    """Return the links to messages that the search page shows for each query."""
    given = {"script": str(SCRIPT), "messages": messages.as_json(), "queries": queries}
    command = [str(NODE), str(Path(__file__).with_name("search.js"))]
    done = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout))


def missed(queries: dict[messages.Message, str], among: int) -> list[str]:
    """Return the messages whose entry is not among the first so many links."""
    found = zip(queries, links(list(queries.values())), strict=True)
    return [message.text for message, shown in found if messages.link_of(message) not in shown[:among]]


def sentences() -> list[messages.Message]:
    return [message for message in messages.collect() if message.is_sentence]


def test_every_pasted_message_finds_its_entry() -> None:
    """As it is in a log: with its values, and with what Airflow writes before it."""
    before = "[2026-03-01, 09:14:02 UTC] {taskinstance.py:3311} ERROR - "
    pasted = {
        message: f"{before}{message.kind}: {message.text.replace(messages.GAP, 'crm_staging_42')}"
        for message in sentences()
    }
    assert len(pasted) > 250
    assert missed(pasted, among=1) == []


def test_first_words_of_every_message_find_its_entry() -> None:
    assert missed({message: message.title for message in sentences()}, among=3) == []


@pytest.mark.parametrize(
    "query",
    ["metrics", "delivery sensor", "what happens when a worker dies", "erase a phone number", "connection refused"],
)
def test_other_words_find_no_message(query: str) -> None:
    assert links([query]) == [[]]
