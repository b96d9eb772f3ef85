"""The frequent messages have cause and remedy, and every other one its entry for the search."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.unit.docs import DOCS

from cpaas_docs import messages  # isort: skip
from cpaas_docs.pages import expanded  # isort: skip

SENTENCE = re.compile(r"[A-Z][^%{}]{20,}")
# Errors of programmers, and of HTTP, which have no text of their own.
UNSEEN = {"NotImplementedError", "AssertionError", "AttributeError", "RuntimeError", "TypeError", "RefusalError"}


@pytest.fixture(scope="module")
def page() -> str:
    return expanded((DOCS / "operations" / "all-messages.md").read_text(encoding="utf-8"))


def test_frequent_messages_have_cause_and_remedy() -> None:
    text = messages.TROUBLESHOOTING.read_text(encoding="utf-8")
    found = messages.entries()
    assert len(found) == text.count("\n### ") == len({entry.title for entry in found})
    assert len(found) >= 60


@pytest.mark.parametrize("entry", messages.entries(), ids=lambda entry: entry.title)
def test_entry_has_the_words_of_a_message(entry: messages.Entry) -> None:
    about = [message for message in messages.collect() if entry.words in message.text]
    assert about
    assert messages.link_of(about[0]) == entry.link


def test_no_success_is_among_the_messages() -> None:
    texts = [message.text for message in messages.collect()]
    for success in ("Resolved as", "Connected to", "No unresolved requests", "The list equals the source", "Planned:"):
        assert not [text for text in texts if text.startswith(success)]


def test_every_message_has_an_entry(page: str) -> None:
    found = messages.collect()
    assert len(found) > 300
    for message in found:
        assert message.text in page or messages._escaped(message.text) in page, message


def test_plain_message_of_a_raise_is_on_the_page(page: str) -> None:
    """A second, simpler walk: the literal parts of every text that is raised."""
    missed = []
    for path in messages.SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args):
                continue
            name = ast.unparse(node.exc.func).rpartition(".")[2]
            for part in ast.walk(node.exc.args[0]) if name not in UNSEEN else ():
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    missed += [
                        (path.name, node.lineno, words)
                        for words in SENTENCE.findall(" ".join(part.value.split()))
                        if words.strip() not in page
                    ]
    assert missed == []


def test_every_section_of_the_code_is_on_the_page() -> None:
    raw = (DOCS / "operations" / "all-messages.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^```\{reference\} messages (\S+)$", raw, re.M)) == set(messages.subjects())


def test_code_without_a_section_fails_the_build() -> None:
    with pytest.raises(LookupError, match="SUBJECTS"):
        _ = messages.Message("It is so.", "text", "pigeons/loft.py", "").subject


def test_each_way_of_speaking_is_collected(tmp_path: Path) -> None:
    source = tmp_path / "connection.py"
    source.write_text(
        'def one(name):\n    raise ValueError(f"The host of {name} is not there. Give one.")\n'
        'def two(log, name):\n    log.warning("The host %r is slow today: %.1f s.", name, 1.0)\n'
        'def three(log, error):\n    log.warning("%s", f"The host went {error} away.")\n'
        'def four():\n    return "The host is kept for another time."\n'
        'def five(log):\n    log.info("The host is there and all is well.")\n'
        'def six():\n    """The docstring is no message."""\n    raise AssertionError("The host is mad.")\n',
        encoding="utf-8",
    )
    found = {(one.kind, one.text) for one in messages.messages_of(source, "hooks/connection.py")}
    assert found == {
        ("ValueError", "The host of … is not there. Give one."),
        ("warning", "The host … is slow today: … s."),
        ("warning", "The host went … away."),
        ("text", "The host is kept for another time."),
    }


def test_error_class_is_described_by_its_docstring(page: str) -> None:
    found = next(one for one in messages.collect() if one.kind == "CpaasConfigurationError")
    assert found.effect.startswith("`CpaasConfigurationError`: ")
    assert found.effect in page


def test_anchors_are_unique(page: str) -> None:
    anchors = re.findall(r"^\((message-[\w-]+)\)=$", page, re.M)
    assert len(anchors) == len(set(anchors)) > 300
    generated = [one["link"] for one in messages.as_json() if one["link"].startswith(messages.ALL_MESSAGES)]
    assert {link.partition("#")[2] for link in generated} <= set(anchors)
    assert len(generated) < len(messages.as_json())
