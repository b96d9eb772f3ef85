"""Keys without a value, columns that vanish, and values that nothing takes back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import airflow.settings  # noqa: F401 - configures logging, which must not happen while a test reads the log
import pytest

from cpaas_provider.api.errors import CpaasInvalidRequestError
from cpaas_provider.contacts.key_map.key_map import KeyMap
from cpaas_provider.contacts.key_map.maps import open_map
from cpaas_provider.contacts.mapping.keys import key_text, key_texts
from cpaas_provider.contacts.mapping.rules import ColumnRule
from cpaas_provider.contacts.sync import sync as sync_module
from cpaas_provider.contacts.sync.rows.single_row import key_hash
from cpaas_provider.database.database import Database, open_database
from cpaas_provider.sources.csv_file import CsvSource
from tests.unit.contacts.sync import model
from tests.unit.contacts.sync.model import URL, Ended, Step, World
from tests.unit.contacts.sync.test_attacked import rows

WORDS = ["None", "nan", "NaN", "NaT", "<NA>", "null", "NULL"]


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Database]:
    with open_database(f"sqlite:///{tmp_path / 'store.db'}") as opened:
        yield opened


@pytest.fixture
def world(own: Database, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(World, "check_run", lambda *_: None)
    monkeypatch.setattr(World, "check_map", lambda *_: None)
    return World(own, "columns")


@pytest.fixture
def key_map(own: Database) -> KeyMap:
    return open_map(own, conn_id="c", base_url=URL, table_id="t")


@pytest.mark.parametrize("word", WORDS)
def test_word_for_a_missing_value_is_no_key(word: str) -> None:
    for written in (word, f" {word} ", f"\u200b{word}"):
        with pytest.raises(ValueError, match=r"is the word .*, which means that there is no value"):
            key_text(written)
    with pytest.raises(ValueError, match="no value"):
        key_texts(["17", word])


@pytest.mark.parametrize("name", ["Null", "NONE", "Nan", "Nat", "none", "null-17", "NA"])
def test_name_that_resembles_such_a_word_is_a_key(name: str) -> None:
    assert key_text(name) == name


@pytest.mark.parametrize("word", WORDS)
def test_rows_with_such_a_key_are_invalid_and_share_no_row(world: World, word: str) -> None:
    (ended,) = world.run(Step((("k1", "1", "1"), (word, "2", "2"), (word, "3", "3"))))
    assert (ended.report["created"], ended.report["invalid_rows"], ended.report["duplicates"]) == (1, 2, 0)
    assert [line.number for line in ended.lines if line.outcome == "invalid_row"] == [2, 3]


@pytest.mark.parametrize("key", ["None", "none", None, "", ["17", "None"], ["17", None], ("nan",), ["none", "17"]])
def test_rendered_key_without_a_value_is_refused(key_map: KeyMap, key: Any) -> None:
    with pytest.raises(ValueError, match=r"is None|is empty|is the word"):
        key_hash(key_map, key)


def by_name(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, **source: str) -> Ended:
    """Run a sync of a file without ``columns``."""
    cells = {"key": "k1", **source}
    (tmp_path / "source.csv").write_text(f"{','.join(cells)}\n{','.join(cells.values())}\n")
    monkeypatch.setattr(model, "RULES", {})
    monkeypatch.setattr(model, "ListSource", lambda _: CsvSource(str(tmp_path / "source.csv")))
    (ended,) = world.run(Step(()))
    return ended


def test_column_that_is_renamed_in_the_source_is_not_dropped_silently(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        assert by_name(world, monkeypatch, tmp_path, A="1", B="1").report["created"] == 1
    assert "Columns of the list: Key from key; A from A; B from B." in caplog.text
    ended = by_name(world, monkeypatch, tmp_path, A="2", b_new="1")
    assert isinstance(ended.error, CpaasInvalidRequestError)
    assert "The last sync filled 'B', and source and list no longer share that name. Nothing was sent." in str(
        ended.error
    )
    assert ended.requests == []
    monkeypatch.setattr(model, "RULES", {"Key": ColumnRule(source="key"), "A": ColumnRule(source="A")})
    (named,) = world.run(Step(()))
    assert named.report["updated"] == 1
    # What was named then is what the next run is compared with.
    assert by_name(world, monkeypatch, tmp_path, A="3").report["updated"] == 1


def test_sync_of_another_column_changes_nothing_for_a_sync_without_columns(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As one that marks the contacts whose messages failed."""
    assert by_name(world, monkeypatch, tmp_path, A="1").report["created"] == 1
    monkeypatch.setattr(model, "RULES", {"B": ColumnRule(constant="unreachable")})
    (marked,) = world.run(Step((("k1", "1", "1"),), mode="update"))
    assert marked.report["updated"] == 1
    ended = by_name(world, monkeypatch, tmp_path, A="2")
    assert (ended.error, ended.report["updated"]) == (None, 1)
    ended = by_name(world, monkeypatch, tmp_path, a_new="3")
    assert "The last sync filled 'A', and source and list no longer share that name." in str(ended.error)
    assert ended.requests == []


def test_column_that_is_renamed_in_the_list_is_not_dropped_silently(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    by_name(world, monkeypatch, tmp_path, A="1", B="1")
    monkeypatch.setitem(model._NAMES, "b", "Be")
    ended = by_name(world, monkeypatch, tmp_path, A="1", B="2")
    assert "The last sync filled 'B'" in str(ended.error)
    assert ended.requests == []


def test_value_for_gone_rows_in_a_column_that_is_not_filled_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "RULES", {"Key": ColumnRule(source="key"), "B": ColumnRule(source="b")})
    world.run(Step(rows(2)))
    original = sync_module.SyncSpec
    spec: Any = lambda **given: original(**{**given, "missing_cells": {"A": "gone"}})  # noqa: E731 - one place
    monkeypatch.setattr(model, "SyncSpec", spec)
    (ended,) = world.run(Step(rows(1), on_missing="set"))
    assert "on_missing writes into 'A', which columns does not fill." in str(ended.error)
    assert ended.requests == []
    filled = {"Key": ColumnRule(source="key"), "A": ColumnRule(constant="active"), "B": ColumnRule(source="b")}
    monkeypatch.setattr(model, "RULES", filled)
    world.run(Step(rows(1), on_missing="set"))
    assert world.list.rows[world.list.of_key("k2")[0]]["a"] == "gone"
    world.run(Step(rows(2), on_missing="set"))
    assert world.list.rows[world.list.of_key("k2")[0]]["a"] == "active"
