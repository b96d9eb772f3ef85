"""Many waiters, one poller: when it begins and ends, what its failures mean, and that it belongs to one loop."""

from __future__ import annotations

import asyncio
import contextvars
import datetime as dt
import logging
import threading
from collections.abc import Iterator
from typing import ClassVar

import pytest
from airflow.sdk import timezone

from cpaas_provider.triggers._polling import poller
from cpaas_provider.triggers._polling.poller import Poller, WaitEndedError, Waiter, backoff

running_in = contextvars.ContextVar("running_in", default="no task")


def in_(seconds: float) -> dt.datetime:
    return timezone.utcnow() + dt.timedelta(seconds=seconds)


class Watched(Poller[Waiter[str]]):
    """A poller that counts its rounds and fails as the test says."""

    made: ClassVar[list[Watched]] = []
    fails: ClassVar[list[Exception]] = []

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.made.append(self)
        self.rounds = self.closed = 0
        self.sleeps: list[float] = []
        self.context = ""

    async def round(self) -> float:
        self.rounds += 1
        self.context = running_in.get()
        if self.fails:
            raise self.fails.pop(0)
        for waiter in tuple(self.waiters):
            waiter.set_result(f"read in round {self.rounds}")
        return 3600

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        await asyncio.sleep(0)

    async def close(self) -> None:
        self.closed += 1


class Silent(Watched):
    """A poller that never sets a result."""

    async def round(self) -> float:
        self.rounds += 1
        return 3600


@pytest.fixture(autouse=True)
def no_pollers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(Watched, "made", [])
    monkeypatch.setattr(Watched, "fails", [])
    monkeypatch.setattr(poller, "IDLE_SECONDS", 0.05)
    yield
    # Those of loops that are closed go when the next poller is made.
    assert [place for place in poller._pollers if not place[0].is_closed()] == []


async def waits(kind: type[Watched] = Watched, key: str = "here", seconds: float = 10) -> str | None:
    waiter: Waiter[str] = Waiter()
    with kind.joined(key, waiter):
        return await waiter.result(in_(seconds))


async def until_over(kind: type[Watched] = Watched) -> None:
    """Return when all pollers have ended and closed what they held."""
    async with asyncio.timeout(5):
        while any(not one.closed for one in kind.made):  # noqa: ASYNC110 - nothing else tells that it has ended
            await asyncio.sleep(0.01)


async def until_rounds(times: int) -> None:
    async with asyncio.timeout(5):
        while sum(one.rounds for one in Watched.made) < times:  # noqa: ASYNC110 - the poller is not to be changed
            await asyncio.sleep(0)


class TestOnePoller:
    async def test_thousand_waiters_share_one_round(self) -> None:
        results = await asyncio.gather(*(waits() for _ in range(1000)))
        assert set(results) == {"read in round 1"}
        assert [one.rounds for one in Watched.made] == [1]
        await until_over()

    async def test_another_key_has_another_poller(self) -> None:
        await asyncio.gather(waits(key="here"), waits(key="there"))
        assert sorted(one.key for one in Watched.made) == ["here", "there"]
        await until_over()

    async def test_poller_ends_soon_after_the_last_waiter_and_closes_its_resources(self) -> None:
        await waits()
        assert [one.closed for one in Watched.made] == [0]
        await until_over()
        assert [one.closed for one in Watched.made] == [1]
        await waits()
        assert len(Watched.made) == 2
        await until_over()

    async def test_waiter_that_joins_an_idle_poller_is_served_by_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(poller, "IDLE_SECONDS", 5)
        await waits()
        assert await waits() == "read in round 2"
        assert len(Watched.made) == 1
        Watched.made[0]._task.cancel()
        await until_over()

    async def test_log_lines_of_the_poller_are_not_in_the_log_of_the_first_waiter(self) -> None:
        running_in.set("the first task")
        await waits()
        assert Watched.made[0].context == "no task"
        await until_over()


class TestWaiter:
    async def test_deadline_ends_the_wait_without_a_result(self) -> None:
        with pytest.raises(TimeoutError):
            await waits(Silent, seconds=0.05)
        await until_over(Silent)

    async def test_expired_deadline_ends_the_wait_at_once(self) -> None:
        with pytest.raises(TimeoutError):
            await waits(Silent, seconds=-3600)
        await until_over(Silent)

    async def test_cancelled_waiter_is_removed_and_the_others_keep_waiting(self) -> None:
        tasks = [asyncio.create_task(waits(Silent)) for _ in range(3)]
        await until_rounds(1)
        (poller,) = Watched.made
        tasks[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        assert len(poller.waiters) == 2
        for waiter in tuple(poller.waiters):
            waiter.set_result("late")
        assert await asyncio.gather(*tasks[1:]) == ["late", "late"]
        await until_over(Silent)

    async def test_only_the_first_result_counts(self) -> None:
        waiter: Waiter[str] = Waiter()
        waiter.set_result("first")
        waiter.set_result("second")
        waiter.set_exception(ValueError("third"))
        assert await waiter.result(in_(1)) == "first"


class TestFailures:
    async def test_failed_round_is_repeated_after_a_pause_and_logged_once(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        Watched.fails.extend(OSError("down") for _ in range(6))
        assert await waits() == "read in round 7"
        (poller,) = Watched.made
        assert len(poller.sleeps) == 6
        assert all(earlier < later for earlier, later in zip(poller.sleeps[:-1:2], poller.sleeps[2::2], strict=False))
        assert len([one for one in caplog.records if one.levelno >= logging.WARNING]) == 1
        await until_over()

    async def test_new_waiters_do_not_shorten_the_pauses_of_a_failing_poller(self) -> None:
        Watched.fails.extend(OSError("down") for _ in range(3))
        await asyncio.gather(*(waits() for _ in range(200)))
        (poller,) = Watched.made
        assert len(poller.sleeps) == 3
        await until_over()

    async def test_final_error_ends_all_waits_with_its_cause_and_the_poller_continues(self) -> None:
        cause = ValueError("the key is wrong")
        final = WaitEndedError("ended")
        final.__cause__ = cause
        Watched.fails.append(final)
        ended = await asyncio.gather(*(waits() for _ in range(500)), return_exceptions=True)
        assert {str(error) for error in ended} == {"the key is wrong"}
        assert all(isinstance(error, WaitEndedError) and error.__cause__ is cause for error in ended)
        assert len({id(error) for error in ended}) == 500
        assert await waits() == "read in round 2"
        await until_over()

    async def test_cancelled_poller_ends_all_waits(self) -> None:
        task = asyncio.create_task(waits(Silent, seconds=3600))
        await until_rounds(1)
        (poller,) = Watched.made
        assert poller._task is not None
        poller._task.cancel()
        with pytest.raises(WaitEndedError, match="'here' was stopped"):
            await task
        await until_over(Silent)

    @pytest.mark.parametrize("failures", [1, 2, 5, 50, 10_000])
    def test_pauses_grow_and_are_bounded(self, failures: int) -> None:
        bound = min(30, 0.5 * 2.0 ** min(failures - 1, 10))
        assert all(bound / 2 <= backoff(failures) <= bound for _ in range(20))


class TestLoops:
    def test_next_event_loop_of_a_process_has_its_own_poller(self) -> None:
        assert [asyncio.run(waits()) for _ in range(3)] == ["read in round 1"] * 3
        assert [one.closed for one in Watched.made] == [1, 1, 1]

    def test_loops_of_several_threads_have_a_poller_each(self) -> None:
        results: list[str | None] = []

        async def many() -> None:
            results.extend(await asyncio.gather(*(waits() for _ in range(50))))

        threads = [threading.Thread(target=asyncio.run, args=(many(),)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert results == ["read in round 1"] * 200
        assert len(Watched.made) == 4

    def test_poller_of_a_closed_loop_is_removed(self) -> None:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(waits())
        loop.close()
        assert asyncio.run(waits()) == "read in round 1"
        assert [place for place in poller._pollers if place[0] is loop] == []

    async def test_failing_thousands_of_waiters_lets_other_tasks_run(self) -> None:
        tasks = [asyncio.create_task(waits(Silent, seconds=3600)) for _ in range(5000)]
        await until_rounds(1)
        (poller,) = Watched.made
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(others())
        await poller.fail_all(ValueError("over"))
        assert turns >= 40
        other.cancel()
        assert len(await asyncio.gather(*tasks, return_exceptions=True)) == 5000
        await until_over(Silent)
