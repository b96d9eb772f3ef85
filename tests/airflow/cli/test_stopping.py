"""What signals do to a command that makes a request."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from cpaas_provider.cli.messages.requests import _stopped_by_signals


def test_first_signal_requests_the_stop_and_second_one_cancels_the_task() -> None:
    seen: list[bool] = []

    async def work() -> None:
        async with stop.cancelling():
            os.kill(os.getpid(), signal.SIGINT)
            seen.append(stop.requested)
            # KeyboardInterrupt would end the loop here, whatever it was about to run.
            os.kill(os.getpid(), signal.SIGINT)
            seen.append(True)
            await asyncio.Event().wait()

    with _stopped_by_signals() as stop, pytest.raises(asyncio.CancelledError):
        asyncio.run(work())
    assert seen == [True, True]


def test_third_signal_and_second_one_outside_the_loop_raise_keyboard_interrupt() -> None:
    async def work() -> None:
        async with stop.cancelling():
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)

    with _stopped_by_signals() as stop:
        asyncio.run(work())
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
