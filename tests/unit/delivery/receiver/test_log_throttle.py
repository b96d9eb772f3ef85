from __future__ import annotations

import logging

import pytest

from cpaas_provider.delivery.receiver.log_throttle import ThrottledLogger


class Clock:
    seconds = 0.0


@pytest.fixture
def throttled_log() -> ThrottledLogger:
    Clock.seconds = 50.0
    return ThrottledLogger(logging.getLogger("tested"), clock=lambda: Clock.seconds)


def test_first_warning_is_logged_at_once_and_the_next_after_a_minute(
    throttled_log: ThrottledLogger, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(1000):
        throttled_log.warning("store", "The store is away.")
    assert [one.message for one in caplog.records] == ["The store is away."]
    Clock.seconds += 60
    throttled_log.warning("store", "The store is away.")
    assert caplog.records[-1].message == "The store is away. (999 more times since the last such line)"
    Clock.seconds += 60
    throttled_log.warning("store", "The store is away.")
    assert caplog.records[-1].message == "The store is away."


def test_each_kind_of_warning_is_throttled_separately(
    throttled_log: ThrottledLogger, caplog: pytest.LogCaptureFixture
) -> None:
    throttled_log.warning("store", "one")
    throttled_log.warning("keys", "other")
    assert [one.message for one in caplog.records] == ["one", "other"]
