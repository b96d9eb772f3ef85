"""When a connection's trouble pauses its reads, and how seldom anything is told."""

from __future__ import annotations

import logging

import pytest

from cpaas_provider.api.errors import CpaasNotSentError, CpaasRateLimitedError
from cpaas_provider.triggers._polling import backoff, poller
from cpaas_provider.triggers._polling.backoff import RoundLength, Trouble


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
def trouble(clock: Clock) -> Trouble:
    return Trouble("here")


DOWN = CpaasNotSentError("get_otp: down.")


def failed(trouble: Trouble, clock: Clock, seconds: float = 1.0) -> float:
    """Let a read begin and fail; return how long nothing is to be read from then on."""
    began = clock.now
    clock.now += seconds
    trouble.met(DOWN, began)
    return max(0.0, trouble.held_until - clock.now)


class TestTrouble:
    def test_one_failure_pauses_nothing_and_further_ones_more_and_more(self, trouble: Trouble, clock: Clock) -> None:
        pauses = []
        for _ in range(10):
            pauses.append(failed(trouble, clock))
            clock.now += pauses[-1]
        assert pauses == [0, 0.5, 1, 2, 4, 8, 16, 30, 30, 30]

    def test_a_read_that_succeeds_ends_it(self, trouble: Trouble, clock: Clock) -> None:
        for _ in range(5):
            clock.now += failed(trouble, clock)
        trouble.over()
        assert failed(trouble, clock) == 0

    def test_reads_that_were_under_way_together_count_as_one(self, trouble: Trouble, clock: Clock) -> None:
        failed(trouble, clock)
        began = clock.now
        clock.now += 1
        for _ in range(8):
            trouble.met(DOWN, began)
        assert trouble.held_until - clock.now == 0.5

    def test_the_service_s_own_word_counts_and_a_shorter_one_takes_nothing_back(
        self, trouble: Trouble, clock: Clock
    ) -> None:
        trouble.met(CpaasRateLimitedError("get_otp: later.", retry_after=120.0), clock.now)
        trouble.met(CpaasRateLimitedError("get_otp: later.", retry_after=5.0), clock.now)
        assert trouble.held_until - clock.now == 120

    def test_it_is_told_once_a_minute_with_how_often_it_was(
        self, trouble: Trouble, clock: Clock, caplog: pytest.LogCaptureFixture
    ) -> None:
        for _ in range(1200):
            failed(trouble, clock, 0.125)
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
        length = RoundLength("here")
        for _ in range(100):
            length.came(10.0)
            length.tell(10.0, 8)
        assert caplog.records == []

    def test_beyond_that_it_is_told_at_every_doubling(self, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
        length = RoundLength("here")
        for _ in range(1000):
            clock.now += 60
            length.came(10.0)
            length.tell(10.0, 8)
        assert told(caplog) == [
            f"{count} sensors wait for passcodes on connection 'here'" for count in (101, 202, 404, 808)
        ]

    def test_thousands_that_come_within_a_minute_are_told_of_once_then(
        self, clock: Clock, caplog: pytest.LogCaptureFixture
    ) -> None:
        length = RoundLength("here")
        for _ in range(5000):
            length.came(10.0)
            length.tell(10.0, 8)
        clock.now += 60
        length.tell(10.0, 8)
        clock.now += 600
        length.tell(10.0, 8)
        assert told(caplog) == [f"{count} sensors wait for passcodes on connection 'here'" for count in (101, 5000)]

    def test_around_the_border_it_is_not_told_again_and_again(
        self, clock: Clock, caplog: pytest.LogCaptureFixture
    ) -> None:
        length = RoundLength("here")
        for _ in range(101):
            length.came(10.0)
        for _ in range(50):
            clock.now += 60
            length.tell(10.0, 8)
            length.left(10.0)
            length.tell(10.0, 8)
            length.came(10.0)
        assert len(caplog.records) == 1

    def test_after_the_rate_has_kept_up_again_it_is_news(self, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
        length = RoundLength("here")
        for _ in range(2):
            clock.now += 60
            for _ in range(150):
                length.came(10.0)
            length.tell(10.0, 8)
            for _ in range(150):
                length.left(10.0)
            length.tell(10.0, 8)
        assert len(caplog.records) == 2

    def test_slow_answers_let_fewer_through_than_the_rate(self, caplog: pytest.LogCaptureFixture) -> None:
        length = RoundLength("here")
        for _ in range(50):
            length.came(10.0)
        length.tell(10.0, 8)
        for _ in range(500):
            length.took(4.0)
        length.tell(10.0, 8)
        assert [one.getMessage() for one in caplog.records] == [
            "50 sensors wait for passcodes on connection 'here'. At 2 requests per second, each passcode is read every "
            "25 s. To read more often, raise max_concurrency, if the service permits it."
        ]

    def test_one_slow_answer_says_little(self, caplog: pytest.LogCaptureFixture) -> None:
        length = RoundLength("here")
        for _ in range(50):
            length.came(10.0)
        for _ in range(100):
            length.took(0.02)
        length.took(20.0)
        length.tell(10.0, 8)
        assert caplog.records == []
