"""Other processes that use a store: ``python -m tests.unit.database.workers``, told what to do line by line.

Each says what it has done after that is done, so that a line said is a promise kept.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Self

from cpaas_provider.database.database import open_database
from cpaas_provider.database.errors import CampaignLockedError, LeaseLostError, PartitionsChangedError
from cpaas_provider.database.leases import LeasedState
from cpaas_provider.database.registry import CampaignKey, open_campaign

ROOT = Path(__file__).parent.parent.parent.parent


class Worker:
    """One other process."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.unit.database.workers"]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin
        assert self._process.stdout
        self._ears, self._mouth = self._process.stdin, self._process.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def tell(self, deed: str, url: str, owner: str = "") -> None:
        self._ears.write(json.dumps([deed, url, owner]).encode() + b"\n")
        self._ears.flush()

    def hear(self) -> str:
        """Return the next it says, waiting for it; nothing when it has ended."""
        return self._mouth.readline().decode().removesuffix("\n")

    def kill(self) -> list[str]:
        """End it at once, wherever it is, and return what it had said and nobody heard."""
        self._process.kill()
        said = b"" if self._mouth.closed else self._mouth.read()
        self._process.wait()
        self._ears.close()
        self._mouth.close()
        return said.decode().splitlines()


def _say(word: object) -> None:
    print(word, flush=True)


def _open(url: str, _: str) -> None:
    with open_database(url) as database:
        LeasedState(database, "campaign", "nobody").get("number")
    _say("opened")


def _take(url: str, owner: str) -> None:
    with open_database(url) as database:
        try:
            LeasedState(database, "campaign", owner).acquire()
        except CampaignLockedError:
            _say("taken")
        else:
            _say("mine")


def _count(url: str, owner: str) -> None:
    """Take the campaign and count on, for ever or until it is lost."""
    with open_database(url) as database:
        state = LeasedState(database, "campaign", owner)
        state.acquire()
        number = state.get("number") or 0
        try:
            while True:
                number += 1
                state.set("number", number)
                _say(number)
        except LeaseLostError:
            _say("lost")


def _register(url: str, owner: str) -> None:
    """Open a partition of the campaign, told as "1 of 4", and write to it."""
    part, _, count = owner.split()
    key = CampaignKey("cpaas_default", "sms", "spring", "https://service.example.com")
    with open_database(url) as database:
        try:
            open_campaign(database, key, (int(part), int(count)), owner).state.set("journal", owner)
        except (CampaignLockedError, PartitionsChangedError):
            _say("refused")
        else:
            _say(f"of {count}")


if __name__ == "__main__":
    for line in sys.stdin:
        told, where, who = json.loads(line)
        try:
            {"open": _open, "take": _take, "count": _count, "register": _register}[told](where, who)
        except Exception as failure:  # noqa: BLE001 - the test that hears it fails
            _say(f"{type(failure).__name__}: {failure}")
