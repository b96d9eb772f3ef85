"""Scenes in which what was shown of deliveries once differed from the promises, on both databases."""

from __future__ import annotations

import pytest

from tests.unit.delivery.tracking.model.conftest import Play
from tests.unit.delivery.tracking.model.delivery_world import CAMPAIGNS
from tests.unit.delivery.tracking.model.scenes import FAILING, FAILING_ON_POSTGRES, SCENES, TRACKED


@pytest.mark.parametrize("scene", SCENES)
def test_scene_comes_out_as_promised(play: Play, scene: str, url: str, request: pytest.FixtureRequest) -> None:
    failing = FAILING if url.startswith("sqlite") else FAILING | FAILING_ON_POSTGRES
    if scene in failing:
        request.node.add_marker(pytest.mark.xfail(strict=True, reason=failing[scene]))
    play(*SCENES[scene], tracked=tuple(CAMPAIGNS) if scene in TRACKED else ())
