"""How far a campaign is."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import SimpleNamespace

import pytest

from cpaas_provider.api.amounts import span
from cpaas_provider.sending.campaign.progress import Progress


def test_figures_count_recipients_requests_and_charge() -> None:
    clock, published = SimpleNamespace(now=0.0), list[Mapping[str, float]]()
    progress = Progress(1000, published.append, clock=lambda: clock.now)
    progress.sent, progress.rejected, progress.unknown, progress.skipped, progress.requests = 400, 50, 30, 20, 2
    clock.now = 10.0
    assert progress.figures(12.5, None) == {
        "done": 500, "left": 500, "sent": 400, "rejected": 50, "unknown": 30,
        "requests": 2, "recipients_per_second": 50.0, "charge": 12.5,
    }  # fmt: skip


def test_report_is_logged_and_published(caplog: pytest.LogCaptureFixture) -> None:
    clock, published = SimpleNamespace(now=0.0), list[Mapping[str, float]]()
    progress = Progress(1000, published.append, clock=lambda: clock.now)
    progress.sent = 100
    clock.now = 10.0
    with caplog.at_level(logging.INFO):
        progress.report(None, 5.0)
    assert "100 of 1000 recipients done (10 %)" in caplog.text
    assert "time left: 2 min, cost so far: not known" in caplog.text
    assert published[0]["balance"] == 5.0


def test_progress_of_no_recipients_does_not_divide_by_zero(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        Progress(0, clock=lambda: 0.0).report(None, None)
    assert "0 of 0 recipients done (100 %)" in caplog.text
    assert "time left: unknown" in caplog.text


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.2, "0 s"), (59.4, "59 s"), (60, "1 min"), (3540, "59 min"), (5400, "1 h 30 min")]
)
def test_duration_is_written_in_seconds_minutes_or_hours(seconds: float, words: str) -> None:
    assert span(seconds) == words


def test_failure_to_publish_metrics_is_logged_once_and_raises_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: object) -> None:
        raise OSError("no such host as 2348031234567")

    progress = Progress(10, broken)
    progress.report(1.0, 2.0)
    progress.report(1.0, 2.0)
    assert caplog.text.count("Metrics could not be published (OSError)") == 1
    assert "2348031234567" not in caplog.text
