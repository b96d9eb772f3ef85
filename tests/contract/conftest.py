"""What contract tests share."""

from __future__ import annotations

import pytest

from cpaas_provider.api import core
from tests.contract.speaking import Speaker
from tests.sandbox import Sandbox


@pytest.fixture(params=["sync", "async"])
def speak(request: pytest.FixtureRequest, sandbox: Sandbox) -> Speaker:
    """The service, spoken to by both clients."""
    return Speaker(sandbox, request.param)


@pytest.fixture(autouse=True)
def _no_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """Full jitter may draw zero; here it always does, so that nobody waits."""
    monkeypatch.setattr(core, "_FIRST_BACKOFF", 0.0)
