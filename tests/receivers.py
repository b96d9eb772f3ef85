"""The processes of a receiver that runs with several workers."""

from __future__ import annotations

import contextlib

import psutil


def forking(first: int) -> psutil.Process | None:
    """Return the process that forks the workers, by the number of the receiver's first; ``None`` if there is none."""
    return next((one for one in _children(first) if _runs(one, "forkserver")), None)


def workers(first: int) -> list[psutil.Process]:
    """Return the workers, forked or begun anew."""
    forker = forking(first)
    begun_anew = [one for one in _children(first) if _runs(one, "spawn_main")]
    return begun_anew + (_children(forker.pid) if forker else [])


def _children(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return [one for one in psutil.Process(pid).children() if one.status() != psutil.STATUS_ZOMBIE]
    return []


def _runs(process: psutil.Process, what: str) -> bool:
    with contextlib.suppress(psutil.Error):
        return any(what in part for part in process.cmdline())
    return False
