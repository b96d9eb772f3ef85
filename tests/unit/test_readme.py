"""What README says. Its programs and links are checked with those of the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.system.small_png import LARGEST

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
GUARANTEES = (ROOT / "docs" / "concepts" / "guarantees.md").read_text(encoding="utf-8")


def test_readme_is_at_most_8_kb() -> None:
    assert len(README.encode()) <= 8192


def test_readme_shows_two_pictures_with_alt_texts() -> None:
    pictures = re.findall(r"!\[([^\]]+)\]\(([^)]+)\)", README)
    assert len(pictures) == 2
    assert all(len(alt) > 20 and (ROOT / path).is_file() for alt, path in pictures)


def test_pictures_are_small_and_each_is_shown() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = {Path(path).name for page in pages for path in re.findall(r"pictures/(\S+)\)", page.read_text("utf-8"))}
    sizes = {file.name: file.stat().st_size for file in (ROOT / "docs" / "pictures").iterdir()}
    assert shown == sizes.keys()
    assert max(sizes.values()) <= LARGEST


@pytest.mark.parametrize("command", ["make demo", "make test", "airflow cpaas ping", "cpaas-sandbox --port"])
def test_readme_names_the_commands(command: str) -> None:
    assert command in README


@pytest.mark.parametrize(
    "words",
    [
        "## What is promised when a worker dies",
        "## What is promised when a journal is lost",
        "## What is not promised",
        "A request of a try that Airflow has given up may still arrive",
        "the DAG run was deleted, or removed by `airflow db clean` | the journal is deleted with the run",
        "`[state_store] clear_on_success`",
    ],
)
def test_guarantees_name_what_is_not_promised(words: str) -> None:
    assert words in " ".join(GUARANTEES.split())
