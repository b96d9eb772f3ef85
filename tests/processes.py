"""A program with all its children, started and ended as one, also by a later program that finds it written down."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import psutil

MARK = "CPAAS_TESTS_STARTED_THIS"
GRACE_SECONDS = 15.0

# Kept so that nothing warns of children that outlive the object which started them: here that is the purpose.
_children: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True)
class Started:
    """A program we started: its session, and how to tell it from a stranger that has the same number later.

    The session holds all children that did not open one of their own; those are found by a mark in their environment,
    which every child inherits.
    """

    session: int
    born: float
    mark: str

    @classmethod
    def start(cls, command: list[str], environment: Mapping[str, str], log: Path, cwd: Path) -> Self:
        """Start a program in a session of its own, with its output going to a file."""
        mark = secrets.token_hex(16)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                env={**environment, MARK: mark},
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        _children.append(process)
        return cls(process.pid, psutil.Process(process.pid).create_time(), mark)

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> Self:
        """Return what ``as_json`` wrote down."""
        return cls(int(written["session"]), float(written["born"]), str(written["mark"]))

    def as_json(self) -> dict[str, Any]:
        """Return what a later program needs to find it again."""
        return asdict(self)

    @property
    def alive(self) -> bool:
        """Whether the program itself still runs, whatever became of its children."""
        return any(process.pid == self.session for process in self.processes())

    def wait_until(self, ready: Callable[[], bool], most_idle: float) -> bool:
        """Wait until something holds; return whether it does.

        A program that gets no processor on a busy machine is not stuck, so the time alone ends no wait.

        :param most_idle: seconds in which a program that used no processor is taken to be stuck
        """
        used, deadline = -1.0, 0.0
        while not ready():
            now, seconds = time.monotonic(), self._cpu_seconds()
            if seconds is None or (seconds <= used and now > deadline):
                return False
            if seconds > used:
                used, deadline = seconds, now + most_idle
            time.sleep(0.05)
        return True

    def _cpu_seconds(self) -> float | None:
        """Return the processor time of the first process, ``None`` once it has ended."""
        with contextlib.suppress(psutil.Error):
            first = psutil.Process(self.session)
            if self._is_first(first) and first.status() != psutil.STATUS_ZOMBIE:
                return sum(first.cpu_times()[:2])
        return None

    def processes(self) -> list[psutil.Process]:
        """Return those of its processes that still run, and nobody else's."""
        fellows, marked = [], []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.status() == psutil.STATUS_ZOMBIE:
                    self._bury(process.pid)
                    continue
                if os.getsid(process.pid) == self.session:
                    fellows.append(process)
                if process.environ().get(MARK) == self.mark:
                    marked.append(process)
        # A session's number can be given out again; one of ours has our first process or our mark in it.
        ours = any(process in marked or self._is_first(process) for process in fellows)
        found = {process.pid: process for process in [*marked, *(fellows if ours else [])]}
        for process in list(found.values()):
            with contextlib.suppress(psutil.Error):
                found.update((child.pid, child) for child in process.children(recursive=True))
        return [process for process in found.values() if process.pid != os.getpid()]

    def stop(self, grace: float = GRACE_SECONDS) -> None:
        """End all of it: politely, then for certain. Whatever ended before is fine."""
        for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, grace)):
            deadline = time.monotonic() + patience
            signalled: set[int] = set()
            while remaining := self.processes():
                # Somebody may be born while we count.
                for process in remaining:
                    if process.pid not in signalled:
                        signalled.add(process.pid)
                        with contextlib.suppress(psutil.Error):
                            process.send_signal(number)
                if time.monotonic() > deadline:
                    break
                time.sleep(0.1)
            else:
                return
        raise RuntimeError(f"These processes cannot be ended: {[process.pid for process in self.processes()]}")

    def _is_first(self, process: psutil.Process) -> bool:
        return process.pid == self.session and abs(process.create_time() - self.born) < 1.0

    def _bury(self, pid: int) -> None:
        """Take leave of our own first process, which stays a zombie until somebody asks for its exit status."""
        if pid == self.session:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
