"""When a connection's trouble pauses its reads, and how seldom anything is told."""

from __future__ import annotations

import logging

import pytest

from cpaas_provider.api.errors import CpaasNotSentError, CpaasRateLimitedError
from cpaas_provider.triggers._polling import backoff, poller
from cpaas_provider.triggers._polling.backoff import FailureBackoff, OverloadReporter


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(backoff, "time", made)
    monkeypatch.setattr(poller.random, "uniform", lambda _, longest: longest)
    return made


@pytest.fixture
def failures(clock: Clock) -> FailureBackoff:
    return FailureBackoff("here")


DOWN = CpaasNotSentError("get_otp: down.")


def failed(failures: FailureBackoff, clock: Clock, seconds: float = 1.0) -> float:
    """Let a read begin and fail; return how long nothing is to be read from then on."""
    began = clock.now
    clock.now += seconds
    failures.on_failure(DOWN, began)
    return max(0.0, failures.held_until - clock.now)


class TestTrouble:
    def test_one_failure_pauses_nothing_and_further_ones_more_and_more(
        self, failures: FailureBackoff, clock: Clock
    ) -> None:
        pauses = []
        for _ in range(10):
            pauses.append(failed(failures, clock))
            clock.now += pauses[-1]
        assert pauses == [0, 0.5, 1, 2, 4, 8, 16, 30, 30, 30]

    def test_a_read_that_succeeds_ends_it(self, failures: FailureBackoff, clock: Clock) -> None:
        for _ in range(5):
            clock.now += failed(failures, clock)
        failures.on_success()
        assert failed(failures, clock) == 0

    def test_reads_that_were_under_way_together_count_as_one(self, failures: FailureBackoff, clock: Clock) -> None:
        failed(failures, clock)
        began = clock.now
        clock.now += 1
        for _ in range(8):
            failures.on_failure(DOWN, began)
        assert failures.held_until - clock.now == 0.5

    def test_the_service_s_own_word_counts_and_a_shorter_one_takes_nothing_back(
        self, failures: FailureBackoff, clock: Clock
    ) -> None:
        failures.on_failure(CpaasRateLimitedError("get_otp: later.", retry_after=120.0), clock.now)
        failures.on_failure(CpaasRateLimitedError("get_otp: later.", retry_after=5.0), clock.now)
        assert failures.held_until - clock.now == 120

    def test_it_is_told_once_a_minute_with_how_often_it_was(
        self, failures: FailureBackoff, clock: Clock, caplog: pytest.LogCaptureFixture
    ) -> None:
        for _ in range(1200):
            failed(failures, clock, 0.125)
        lines = [one.getMessage() for one in caplog.records]
        assert [one.rpartition(": ")[2] for one in lines] == ["1.", "480.", "480."]
        assert lines[0].startswith("get_otp: down. Sensors on connection 'here' keep waiting.")


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage().split(".")[0] for one in caplog.records]


class TestRoundLength:
    @pytest.fixture(autouse=True)
    def seen(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)

    def test_nothing_is_told_while_the_rate_keeps_up(self, caplog: pytest.LogCaptureFixture) -> None:
        reporter = OverloadReporter("here")
        for _ in range(100):
            reporter.on_join(10.0)
            reporter.report(10.0, 8)
        assert caplog.records == []

    def test_beyond_that_it_is_told_at_every_doubling(self, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
        reporter = OverloadReporter("here")
        for _ in range(1000):
            clock.now += 60
            reporter.on_join(10.0)
            reporter.report(10.0, 8)
        assert told(caplog) == [
            f"{count} sensors wait for passcodes on connection 'here'" for count in (101, 202, 404, 808)
        ]

    def test_thousands_that_come_within_a_minute_are_told_of_once_then(
        self, clock: Clock, caplog: pytest.LogCaptureFixture
    ) -> None:
        reporter = OverloadReporter("here")
        for _ in range(5000):
            reporter.on_join(10.0)
            reporter.report(10.0, 8)
        clock.now += 60
        reporter.report(10.0, 8)
        clock.now += 600
        reporter.report(10.0, 8)
        assert told(caplog) == [f"{count} sensors wait for passcodes on connection 'here'" for count in (101, 5000)]

    def test_around_the_border_it_is_not_told_again_and_again(
        self, clock: Clock, caplog: pytest.LogCaptureFixture
    ) -> None:
        reporter = OverloadReporter("here")
        for _ in range(101):
            reporter.on_join(10.0)
        for _ in range(50):
            clock.now += 60
            reporter.report(10.0, 8)
            reporter.on_leave(10.0)
            reporter.report(10.0, 8)
            reporter.on_join(10.0)
        assert len(caplog.records) == 1

    def test_after_the_rate_has_kept_up_again_it_is_news(self, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
        reporter = OverloadReporter("here")
        for _ in range(2):
            clock.now += 60
            for _ in range(150):
                reporter.on_join(10.0)
            reporter.report(10.0, 8)
            for _ in range(150):
                reporter.on_leave(10.0)
            reporter.report(10.0, 8)
        assert len(caplog.records) == 2

    def test_slow_answers_let_fewer_through_than_the_rate(self, caplog: pytest.LogCaptureFixture) -> None:
        reporter = OverloadReporter("here")
        for _ in range(50):
            reporter.on_join(10.0)
        reporter.report(10.0, 8)
        for _ in range(500):
            reporter.on_read(4.0)
        reporter.report(10.0, 8)
        assert [one.getMessage() for one in caplog.records] == [
            "50 sensors wait for passcodes on connection 'here'. At 2 requests per second, each passcode is read every "
            "25 s. To read more often, raise max_concurrency, if the service permits it."
        ]

    def test_one_slow_answer_says_little(self, caplog: pytest.LogCaptureFixture) -> None:
        reporter = OverloadReporter("here")
        for _ in range(50):
            reporter.on_join(10.0)
        for _ in range(100):
            reporter.on_read(0.02)
        reporter.on_read(20.0)
        reporter.report(10.0, 8)
        assert caplog.records == []
