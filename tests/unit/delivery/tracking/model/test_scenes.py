"""Scenes in which what was shown of deliveries once differed from the promises, on both databases."""

from __future__ import annotations

import pytest

from tests.unit.delivery.tracking.model.conftest import Play
from tests.unit.delivery.tracking.model.delivery_world import CAMPAIGNS
from tests.unit.delivery.tracking.model.scenes import SCENES, TRACKED


@pytest.mark.parametrize("scene", SCENES)
def test_scene_comes_out_as_promised(play: Play, scene: str) -> None:
    play(*SCENES[scene], tracked=tuple(CAMPAIGNS) if scene in TRACKED else ())


@pytest.mark.parametrize("scene", ["a recipient that is erased leaves the others their places"])
def test_scene_comes_out_as_promised_with_wiped_files_and_printed_commands(play: Play, scene: str) -> None:
    play(*SCENES[scene], is_thorough=True)
