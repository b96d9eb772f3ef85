"""When failures pause the reads of a connection, and how seldom anything is logged."""

from __future__ import annotations

import logging

import pytest

from cpaas_provider.api.errors import CpaasNotSentError, CpaasRateLimitedError
from cpaas_provider.triggers._polling import backoff
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
    monkeypatch.setattr("cpaas_provider.api.backoff.random.uniform", lambda _, longest: longest)
    return made


@pytest.fixture
def failures(clock: Clock) -> FailureBackoff:
    return FailureBackoff("here")


DOWN = CpaasNotSentError("get_otp: down.")


def failed(failures: FailureBackoff, clock: Clock, seconds: float = 1.0) -> float:
    """Let a read begin and fail; return how long no read begins from then on."""
    began = clock.now
    clock.now += seconds
    failures.on_failure(DOWN, began)
    return max(0.0, failures.held_until - clock.now)


class TestFailureBackoff:
    def test_first_failure_does_not_pause_reads_and_each_further_one_pauses_longer(
        self, failures: FailureBackoff, clock: Clock
    ) -> None:
        pauses = []
        for _ in range(10):
            pauses.append(failed(failures, clock))
            clock.now += pauses[-1]
        assert pauses == [0, 0.5, 1, 2, 4, 8, 16, 30, 30, 30]

    def test_read_that_succeeds_resets_the_backoff(self, failures: FailureBackoff, clock: Clock) -> None:
        for _ in range(5):
            clock.now += failed(failures, clock)
        failures.on_success()
        assert failed(failures, clock) == 0

    def test_reads_in_flight_together_count_as_one_failure(self, failures: FailureBackoff, clock: Clock) -> None:
        failed(failures, clock)
        began = clock.now
        clock.now += 1
        for _ in range(8):
            failures.on_failure(DOWN, began)
        assert failures.held_until - clock.now == 0.5

    def test_retry_after_sets_the_pause_and_a_shorter_one_does_not_shorten_it(
        self, failures: FailureBackoff, clock: Clock
    ) -> None:
        failures.on_failure(CpaasRateLimitedError("get_otp: later.", retry_after=120.0), clock.now)
        failures.on_failure(CpaasRateLimitedError("get_otp: later.", retry_after=5.0), clock.now)
        assert failures.held_until - clock.now == 120

    def test_failures_are_logged_once_a_minute_with_their_count(
        self, failures: FailureBackoff, clock: Clock, caplog: pytest.LogCaptureFixture
    ) -> None:
        for _ in range(1200):
            failed(failures, clock, 0.125)
        lines = [one.getMessage() for one in caplog.records]
        assert [one.rpartition(": ")[2] for one in lines] == ["1.", "480.", "480."]
        assert lines[0].startswith("get_otp: down. Sensors on connection 'here' keep waiting.")


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage().split(".")[0] for one in caplog.records]


class TestOverloadReporter:
    @pytest.fixture(autouse=True)
    def seen(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)

    def test_nothing_is_logged_while_the_rate_is_sufficient(self, caplog: pytest.LogCaptureFixture) -> None:
        reporter = OverloadReporter("here")
        for _ in range(100):
            reporter.on_join(10.0)
            reporter.report(10.0, 8)
        assert caplog.records == []

    def test_round_length_is_logged_at_every_doubling(self, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
        reporter = OverloadReporter("here")
        for _ in range(1000):
            clock.now += 60
            reporter.on_join(10.0)
            reporter.report(10.0, 8)
        assert logged(caplog) == [
            f"{count} sensors wait for passcodes on connection 'here'" for count in (101, 202, 404, 808)
        ]

    def test_thousands_of_waiters_that_join_within_a_minute_are_logged_once(
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
        assert logged(caplog) == [f"{count:,} sensors wait for passcodes on connection 'here'" for count in (101, 5000)]

    def test_load_around_the_limit_is_logged_once(self, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
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

    def test_overload_is_logged_again_after_the_rate_was_sufficient(
        self, clock: Clock, caplog: pytest.LogCaptureFixture
    ) -> None:
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

    def test_slow_responses_lower_the_rate_and_name_max_concurrency(self, caplog: pytest.LogCaptureFixture) -> None:
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

    def test_single_slow_response_logs_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        reporter = OverloadReporter("here")
        for _ in range(50):
            reporter.on_join(10.0)
        for _ in range(100):
            reporter.on_read(0.02)
        reporter.on_read(20.0)
        reporter.report(10.0, 8)
        assert caplog.records == []
