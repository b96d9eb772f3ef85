"""Scenes in which what was shown of deliveries once differed from the promises, on both databases."""

from __future__ import annotations

import pytest

from tests.unit.delivery.tracking.model.conftest import RunScript
from tests.unit.delivery.tracking.model.delivery_world import CAMPAIGNS
from tests.unit.delivery.tracking.model.scenes import SCENES, TRACKED


@pytest.mark.parametrize("scene", SCENES)
def test_scenario_is_shown_as_promised(run_script: RunScript, scene: str) -> None:
    run_script(*SCENES[scene], tracked=tuple(CAMPAIGNS) if scene in TRACKED else ())


@pytest.mark.parametrize("scene", ["a recipient that is erased leaves the others their places"])
def test_scenario_is_shown_as_promised_with_wiped_files_and_printed_commands(run_script: RunScript, scene: str) -> None:
    run_script(*SCENES[scene], is_thorough=True)
