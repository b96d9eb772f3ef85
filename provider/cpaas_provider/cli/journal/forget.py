"""``airflow cpaas journal forget``: let a task start again if its campaign journal is lost for good."""

from __future__ import annotations

from argparse import Namespace

from airflow.state import get_state_backend
from airflow.utils.cli import action_cli
from airflow.utils.session import create_session
from sqlalchemy.orm import Session

from cpaas_provider.cli.journal import repository
from cpaas_provider.cli.journal.instances import Instance, JournalError
from cpaas_provider.cli.running import guarded
from cpaas_provider.cli.terminal import confirm, say
from cpaas_provider.sending.journal.model import CAMPAIGN_MARKER
from cpaas_provider.sending.journal.resolution import NOTHING_CHANGED

_CONSEQUENCE = "After a clear, the task sends again to every recipient that [cpaas] database does not have."


@action_cli  # type: ignore[untyped-decorator]  # Airflow leaves it unannotated
@guarded
def cpaas_journal_forget(args: Namespace) -> None:
    """Delete the record that a task instance stored a campaign's journal in a database."""
    asked = Instance(args.dag_id, args.run_id, args.task_id, args.map_index)
    with create_session(scoped=False) as session:
        instance = _with_marker(asked, session)
    if not args.yes:
        confirm(f"Delete the record that {instance} sent a campaign? {_CONSEQUENCE}")
    with create_session(scoped=False) as session:
        instance = _with_marker(asked, session)
        get_state_backend().delete(instance.scope, CAMPAIGN_MARKER, session=session)
    say(f"Deleted the record that {instance} sent a campaign. {_CONSEQUENCE}")


def _with_marker(asked: Instance, session: Session) -> Instance:
    """Return a task instance that is not running and has sent a campaign with an idempotency_key.

    :raises JournalError: when it is running, or has sent no such campaign
    """
    instance = repository.find(asked, session)
    repository.refuse_on_its_way(instance)
    if get_state_backend().get(instance.scope, CAMPAIGN_MARKER, session=session) is None:
        raise JournalError(
            f"Task instance {instance} has no record of a campaign with an idempotency_key. {NOTHING_CHANGED}"
        )
    return instance
