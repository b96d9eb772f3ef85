"""``airflow cpaas contacts retry-row``: have the next sync send rejected rows that did not change."""

from __future__ import annotations

from argparse import Namespace

from cpaas_provider.api.amounts import counted
from cpaas_provider.cli.contacts.files import open_key_map
from cpaas_provider.cli.running import guarded
from cpaas_provider.cli.terminal import say, typed
from cpaas_provider.contacts.key_map.resolution import rejected_by_key, rejected_by_row_number, retry_rejected


@guarded
def cpaas_contacts_retry_row(args: Namespace) -> None:
    """Have the next sync send rejected rows again."""
    if sum([args.key is not None, args.row_number is not None, args.all]) != 1:
        raise SystemExit("Give one of --key, --row-number and --all. Nothing was changed.")
    with open_key_map(args) as key_map:
        keys = None
        if args.key is not None:
            keys = [rejected_by_key(key_map, [typed(part) for part in args.key])]
        elif args.row_number is not None:
            keys = [rejected_by_row_number(key_map, args.row_number)]
        marked, changed = retry_rejected(key_map, keys)
    say(f"The next sync sends {counted(marked, 'rejected row')} again.")
    if changed:
        others = counted(changed, "other row")
        raise SystemExit(f"A task works on {others} now. Nothing was changed there. Run status again.")
