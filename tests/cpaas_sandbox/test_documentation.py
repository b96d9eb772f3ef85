"""docs/getting-started/sandbox.md names every fault, setting, option and call, and none that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cpaas_sandbox.core.settings import SETTINGS
from cpaas_sandbox.faults.kinds import KINDS, Stage

DOC = (Path(__file__).parents[2] / "docs" / "getting-started" / "sandbox.md").read_text(encoding="utf-8")


def table_names(heading: str) -> set[str]:
    """Return the names in the first column of the table below a heading."""
    section = re.split(r"^##", DOC.split(heading, 1)[1], flags=re.MULTILINE)[0]
    first_cells = re.findall(r"^\| (`.*?) \|", section, flags=re.MULTILINE)
    return {name for cell in first_cells for name in re.findall(r"`([\w-]+)", cell)}


def test_every_fault_is_documented() -> None:
    assert table_names("### Faults") == set(KINDS)


def test_every_setting_is_documented() -> None:
    assert table_names("### Settings") == set(SETTINGS)


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"cut_before", "cut_after"}))
def test_every_fault_is_documented_with_its_stage(kind: str) -> None:
    row = next(line for line in DOC.splitlines() if line.startswith("|") and f"`{kind}`" in line)
    stated = next((stage for stage in Stage if f"| {stage.value}: " in row), Stage.DELAY)
    assert stated is KINDS[kind].stage


@pytest.mark.parametrize("kind", KINDS)
def test_every_figure_of_a_fault_is_documented(kind: str) -> None:
    row = next(line for line in DOC.splitlines() if line.startswith("|") and f"`{kind}`" in line)
    assert all(f"`{figure}`" in row for figure in KINDS[kind].params)


def test_every_option_of_the_command_is_documented() -> None:
    from cpaas_sandbox import __main__ as command

    told = {text for action in command._parser()._actions for text in action.option_strings if text.startswith("--")}
    assert told - {"--help", "--version"} == set(re.findall(r"^\| `(--[\w-]+)", DOC, flags=re.MULTILINE))
