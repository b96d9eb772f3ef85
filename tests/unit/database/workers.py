"""Other processes that use a database: ``python -m tests.unit.database.workers``, with one command a line.

Each replies after a command is done, so that a reply proves that its work is stored.
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
        self._stdin, self._stdout = self._process.stdin, self._process.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def send_command(self, command: str, url: str, owner: str = "") -> None:
        self._stdin.write(json.dumps([command, url, owner]).encode() + b"\n")
        self._stdin.flush()

    def read_reply(self) -> str:
        """Return the next reply, waiting for it; an empty text when the process has ended."""
        return self._stdout.readline().decode().removesuffix("\n")

    def kill(self) -> list[str]:
        """Kill the process and return its unread replies."""
        self._process.kill()
        said = b"" if self._stdout.closed else self._stdout.read()
        self._process.wait()
        self._stdin.close()
        self._stdout.close()
        return said.decode().splitlines()


def _reply(reply: object) -> None:
    print(reply, flush=True)


def _open(url: str, _: str) -> None:
    with open_database(url) as database:
        LeasedState(database, "campaign", "nobody").get("number")
    _reply("opened")


def _take(url: str, owner: str) -> None:
    with open_database(url) as database:
        try:
            LeasedState(database, "campaign", owner).acquire()
        except CampaignLockedError:
            _reply("taken")
        else:
            _reply("mine")


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
                _reply(number)
        except LeaseLostError:
            _reply("lost")


def _register(url: str, owner: str) -> None:
    """Open a partition of the campaign, given as "1 of 4", and write to it."""
    part, _, count = owner.split()
    key = CampaignKey("cpaas_default", "sms", "spring", "https://service.example.com")
    with open_database(url) as database:
        try:
            open_campaign(database, key, (int(part), int(count)), owner).state.set("journal", owner)
        except (CampaignLockedError, PartitionsChangedError):
            _reply("refused")
        else:
            _reply(f"of {count}")


if __name__ == "__main__":
    for line in sys.stdin:
        command, url, owner = json.loads(line)
        try:
            {"open": _open, "take": _take, "count": _count, "register": _register}[command](url, owner)
        except Exception as failure:  # noqa: BLE001 - the test that reads it fails
            _reply(f"{type(failure).__name__}: {failure}")
