"""Lets time pass: what is due on the sandbox's clock happens, between requests and before each of them."""

from __future__ import annotations

from cpaas_provider.sandbox.core.context import Sandbox
from cpaas_provider.sandbox.service.handlers import airtime

_NEXT = "SELECT min(due) AS due FROM airtime WHERE due IS NOT NULL"


def tick(sandbox: Sandbox) -> None:
    """Let what is due happen; cheap when nothing is."""
    if sandbox.wakeup.due:
        with sandbox.database.transaction():
            sandbox.wakeup.set(None)
            airtime.complete_purchases(sandbox)
            sandbox.wakeup.set((sandbox.database.row(_NEXT) or {}).get("due"))


async def run(sandbox: Sandbox) -> None:
    """Let time pass until the server ends."""
    while not sandbox.closing.is_set():
        tick(sandbox)
        await sandbox.wakeup.sleep()
