"""Names in the packages keep to the glossary."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.docs import ROOT
from tests.unit.docs.identifiers import INSTEAD, WORDS, faults, words_of

PROVIDER = ROOT / "provider"

UNCLEAN: set[str] = set()
"""Files whose names still have words that the glossary replaced. The table only shrinks."""


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    """Return a line for each name with a word that is not used, by file."""
    lines: dict[str, list[str]] = {}
    for path in sorted(PROVIDER.rglob("*.py")):
        place = path.relative_to(PROVIDER).as_posix()
        for word, names in faults(path).items():
            use = WORDS[word]
            lines.setdefault(place, []).extend(f"{place}:{one.line}: {one.text}: use {use}" for one in names)
    return lines


def test_no_name_has_a_word_that_the_glossary_replaced(found: dict[str, list[str]]) -> None:
    unclean = [line for place, lines in found.items() if place not in UNCLEAN for line in lines]
    assert unclean == []


def test_table_names_only_files_that_need_it(found: dict[str, list[str]]) -> None:
    clean = UNCLEAN - found.keys()
    assert clean == set(), "These files are clean or gone: remove them from the table."


def test_no_word_is_in_the_table_twice() -> None:
    assert len(WORDS) == sum(len(words.split()) for words in INSTEAD)


@pytest.mark.parametrize(
    ("name", "words"),
    [("note_told", ["note", "told"]), ("DeliveryEvent", ["delivery", "event"]), ("_MAX_URL_2", ["max", "url", "2"])],
)
def test_name_is_split_into_words(name: str, words: list[str]) -> None:
    assert words_of(name) == words


@pytest.mark.parametrize(
    "code",
    [
        "def tell(news): ...",
        "class Ledger: ...",
        "class Journal:\n    async def record(self, *, deed): ...",
        "FIRST_FATE = 1",
        "class Row:\n    standing: int = 0",
    ],
)
def test_name_against_the_glossary_is_found(tmp_path: Path, code: str) -> None:
    path = tmp_path / "module.py"
    path.write_text(code, encoding="utf-8")
    assert faults(path)


@pytest.mark.parametrize("code", ["def understanding(tellurium): ...", "def publish(batch): ...", "x.tell()"])
def test_name_of_the_glossary_passes(tmp_path: Path, code: str) -> None:
    path = tmp_path / "module.py"
    path.write_text(code, encoding="utf-8")
    assert faults(path) == {}
