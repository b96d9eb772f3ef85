"""A process with rows in a temporary file: ``python -m tests.unit.common.rows_on_disk KIND FOLDER``.

It prints a line when they are on the disk, and waits to be killed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

PHONE = "2348031234567"
ROWS = range(2_000)


def fill_spool(folder: str) -> Any:
    """Store the rows of a contact sync."""
    from cpaas_provider.contacts.sync.spool import Spool, WorkItem

    spool = Spool(folder)
    spool.add_work((WorkItem(b"%d" % row, row, f"key {row}", b"", {"phone": PHONE}), "create") for row in ROWS)
    spool._rows.commit()
    return spool


def fill_staging(folder: str) -> Any:
    """Store the rows of an imported key map."""
    from cpaas_provider.contacts.key_map.entries import MapEntry
    from cpaas_provider.contacts.key_map.staging import StagedEntry, Staging

    staging = Staging()
    staging.add(StagedEntry(row, MapEntry(b"%d" % row, row_id=PHONE), None) for row in ROWS)
    staging._rows.commit()
    return staging


def fill_recipients(folder: str) -> Any:
    """Store the recipients of a campaign."""
    from cpaas_provider.sending.campaign.recipients import RecipientRow, RecipientStatus, RecipientTable

    table = RecipientTable(folder)
    table.add(RecipientRow(row, RecipientStatus.NOT_SENT, b"%d" % row, PHONE) for row in ROWS)
    assert len(list(table.rows())) == len(ROWS)
    return table


def fill_lookups(folder: str) -> Any:
    """Store the lines of a bulk lookup."""
    from cpaas_provider._common.local_files import open_unnamed_file

    file = open_unnamed_file(folder)
    file.writelines(f"{PHONE}\n" for _ in ROWS)
    file.flush()
    return file


def fill_results(folder: str) -> Any:
    """Write a part of a results file."""
    from cpaas_provider._common.local_files import create_whole_file, make_folders

    make_folders(Path(folder))
    writing = ExitStack()
    file = writing.enter_context(create_whole_file(Path(folder) / "part"))
    file.writelines(b"%s\n" % PHONE.encode() for _ in ROWS)
    file.flush()
    return writing


def fill_export(folder: str) -> Any:
    """Write a part of an export."""
    from cpaas_provider._common.local_files import create_text_file, make_folders

    make_folders(Path(folder))
    writing = ExitStack()
    file = writing.enter_context(create_text_file(Path(folder) / "export.csv"))
    file.writelines(f"{PHONE}\n" for _ in ROWS)
    file.flush()
    return writing


KINDS: dict[str, Callable[[str], Any]] = {
    "spool": fill_spool,
    "staging": fill_staging,
    "recipients": fill_recipients,
    "lookups": fill_lookups,
    "results": fill_results,
    "export": fill_export,
}

if __name__ == "__main__":
    kept = KINDS[sys.argv[1]](sys.argv[2])
    print("stored", flush=True)
    sys.stdin.read()
