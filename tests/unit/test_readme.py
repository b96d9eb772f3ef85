"""What README says. Its programs and links are checked with those of the documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
GUARANTEES = (ROOT / "docs" / "concepts" / "guarantees.md").read_text(encoding="utf-8")
LARGEST_PICTURE = 200_000


def test_readme_is_at_most_8_kb() -> None:
    assert len(README.encode()) <= 8192


def test_readme_shows_two_pictures_with_alt_texts() -> None:
    pictures = re.findall(r"!\[([^\]]+)\]\(([^)]+)\)", README)
    assert len(pictures) == 2
    assert all(len(alt) > 20 and (ROOT / path).stat().st_size <= LARGEST_PICTURE for alt, path in pictures)


@pytest.mark.parametrize("command", ["make demo", "make test", "airflow cpaas ping", "cpaas-sandbox --port"])
def test_the_commands_are_named(command: str) -> None:
    assert command in README


@pytest.mark.parametrize(
    "words",
    [
        "## What is promised when a worker dies",
        "## What is promised when a journal is lost",
        "## What is not promised",
        "A request of a try that Airflow has given up may still arrive",
        "the DAG run was deleted, or removed by `airflow db clean` | the journal is gone with the run",
        "`[state_store] clear_on_success`",
    ],
)
def test_what_is_beyond_us_is_said(words: str) -> None:
    assert words in " ".join(GUARANTEES.split())


DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_programs_in_the_documents_import_what_there_is(document: Path) -> None:
    for block in re.findall(r"^```python\n(.*?)^```", document.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        if not block.startswith(("import ", "from ")):
            continue
        for statement in ast.walk(ast.parse(block)):
            if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("cpaas_provider"):
                module = importlib.import_module(str(statement.module))
                assert [name.name for name in statement.names if not hasattr(module, name.name)] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_links_between_the_documents_lead_somewhere(document: Path) -> None:
    text = without_programs(document)
    for path, _, heading in (link.partition("#") for link in re.findall(r"\]\((?!https?:)([^)]+)\)", text)):
        target = (document.parent / path).resolve() if path else document
        assert target.exists(), path
        assert not heading or heading in headings(target), f"{path}#{heading}"


def headings(document: Path) -> set[str]:
    lines = re.findall(r"^#+ (.*)$", without_programs(document), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


def without_programs(document: Path) -> str:
    return re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
