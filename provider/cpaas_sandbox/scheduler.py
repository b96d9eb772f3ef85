"""Moves airtime purchases on when the sandbox's clock says so: before each request, and in a task between requests."""

from __future__ import annotations

from cpaas_sandbox.core.context import Sandbox
from cpaas_sandbox.service.handlers import airtime

_NEXT = "SELECT min(due) AS due FROM airtime WHERE due IS NOT NULL"


def tick(sandbox: Sandbox) -> None:
    """Complete the purchases that are due; cheap if none is."""
    if sandbox.wakeup.due:
        with sandbox.database.transaction():
            sandbox.wakeup.set(None)
            airtime.complete_purchases(sandbox)
            sandbox.wakeup.set((sandbox.database.row(_NEXT) or {}).get("due"))


async def run(sandbox: Sandbox) -> None:
    """Complete due purchases until the server ends."""
    while not sandbox.closing.is_set():
        tick(sandbox)
        await sandbox.wakeup.sleep()
