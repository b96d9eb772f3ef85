"""Sentences for users keep to the glossary; the check finds what it shall find, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.docs import ROOT, texts
from tests.unit.docs.glossary import EXCEPTIONS, RULES, faults
from tests.unit.docs.texts import Text


@pytest.fixture(scope="module")
def every_text() -> tuple[Text, ...]:
    return tuple(texts.all_texts())


def found_in(words: str) -> list[str]:
    return list(faults([Text("a page", 1, words)]))


def test_every_text_for_users_follows_the_glossary(every_text: tuple[Text, ...]) -> None:
    found = list(faults(every_text))
    assert not found, "\n".join(["", *found])


def test_every_exception_is_needed(every_text: tuple[Text, ...]) -> None:
    pages = {place for place, _ in EXCEPTIONS}
    found = {
        (text.place, found.strip().lower())
        for text in every_text
        if text.place in pages
        for rule in RULES
        for found in rule.finds(text.words)
    }
    assert set(EXCEPTIONS) <= found


@pytest.mark.parametrize(
    "words",
    [
        "Nobody knows whether a request for 2 recipients was carried out.",
        "Send an SMS to everybody a source names, to each once, whatever ends a try.",
        "Should there be a further try, it takes the request for unknown.",
        "Airflow was told of what reports say by 3 asset events.",
        "Expected is to how many was surely sent.",
        "It succeeds as soon as it is known what became of the message.",
        "There is nothing here.",
        "The outcome file has a row for each recipient.",
        "List requests in doubt and settle them by hand.",
        "Who was sent to and never reported on is not in it.",
        "Look-ups are remembered in the store for 30 days.",
        "The error says that the request is kept in the ledger.",
        "Set `campaign_key` on the operator.",
        "word " * 26,
        "It is read; it is checked; it is stored.",
    ],
)
def test_sentence_against_the_glossary_is_found(words: str) -> None:
    assert found_in(words)


@pytest.mark.parametrize(
    "words",
    [
        "Outcome unknown: request cpaas-1 was started, but the try ended before a response was recorded.",
        "word " * 25,
        "If the task is retried, this request is treated as unknown.",
        "Published 3 delivery events as asset events.",
        "The sensor succeeds once every recipient has a final status.",
        "Airflow's task state store holds the journal.",
        "Personal data in XComs, a stand-alone receiver, keepalive_expiry, and a request whose outcome is unknown.",
        "No one-time passcode has been requested.",
        "Set max_lateness, do_not_track and `resend`.",
        "The provider cannot determine whether the service accepted the request.",
    ],
)
def test_sentence_of_the_glossary_passes(words: str) -> None:
    assert found_in(words) == []


PLANTED = {
    "errors.py": 'def check(log):\n    log.info("Nobody was sent to by %s.", 1)\n',
    "joined.py": 'def check(n):\n    raise ValueError(f"{n} requests " + f"are in doubt ({n}).")\n',
    "help.py": 'COMMANDS = {"help": "Resolve a request by\\nhand"}\n',
    "public.py": 'def look():\n    """Look what became of it."""\n',
    "page.md": "# A page\n\nThe request is settled by\nhand.\n",
    "list.md": "* good\n* the outcome file\n",
    "block.md": "```python\nx = 1  # whoever runs it\n```\n",
    "example.py": "# The store is\n# of no use.\nX = 1\n",
    "Makefile": "go: ## Tell what is new\n",
    "page.html": "<p>Nobody is here.</p>",
    "page.js": 'say("Nobody is here.");\n',
    "drawing.svg": "<text>who&#160;and whom</text>",
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_sentence_is_found_in_each_kind_of_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(PLANTED[name], encoding="utf-8")
    assert list(faults(read(path)))


QUIET = {
    "private.py": 'def _look():\n    """Look what became of it."""\n',
    "sql.py": 'QUERY = "SELECT nobody FROM kept WHERE told = 1"\n',
    "key.py": 'KEY = "kept"\n',
    "code.md": "Set `--mark nobody` and [a link](nobody-knows.md).\n",
}


@pytest.mark.parametrize("name", QUIET)
def test_text_that_no_user_reads_is_not_checked(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(QUIET[name], encoding="utf-8")
    assert list(faults(read(path))) == []


def test_texts_of_every_kind_of_file_are_read(every_text: tuple[Text, ...]) -> None:
    kinds = {Path(text.place).suffix or text.place for text in every_text}
    assert kinds >= {".py", ".md", ".svg", ".html", ".js", "Makefile"}
    assert (ROOT / "docs" / "index.md").is_file()


def read(path: Path) -> list[Text]:
    if path.name == "example.py":
        return list(texts.in_example(path))
    readers = {".md": texts.in_markdown, ".svg": texts.in_drawing, ".html": texts.in_web_page, ".js": texts.in_web_page}
    if path.suffix == ".py":
        return list(texts.in_python(path, docstrings=True))
    return list(readers.get(path.suffix, texts.in_makefile)(path))


UNNAMED = re.compile(r"\b([Nn]obody|[Ss]omebody|[Aa]nybody|[Ee]verybody|[Ww]hoever|[Ww]hom)\b")
"""In the place of an actor or a recipient, in comments and docstrings, too."""


def unnamed_in(text: str) -> list[str]:
    return [
        f"line {number}: {line.strip()}" for number, line in enumerate(text.splitlines(), 1) if UNNAMED.search(line)
    ]


def test_every_line_of_the_packages_names_its_actor() -> None:
    paths = (ROOT / "provider").rglob("*.py")
    found = {str(path.relative_to(ROOT)): unnamed_in(path.read_text("utf-8")) for path in paths}
    assert not {path: lines for path, lines in found.items() if lines}


def test_line_without_an_actor_is_found() -> None:
    assert unnamed_in("# The lease\n# is free: Nobody has it.\n") == ["line 2: # is free: Nobody has it."]
