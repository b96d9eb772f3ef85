"""In how many partitions the task instances of a mapped campaign send: all in the same number, or not at all.

Each knows from its own journal in how many it began. One that a larger number has added has no journal; so each leaves
the number as an XCom, where its siblings in the run see it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException

from cpaas_provider.sending.errors import PartitionChangedError

if TYPE_CHECKING:
    from airflow.sdk import Context

    from cpaas_provider.sending.campaign.partitions import Partition

KEY = "cpaas_partitions"


@contextlib.contextmanager
def same_partitions(context: Context, partition: Partition) -> Iterator[None]:
    """Open a journal within: have the siblings know in how many partitions it began, and look for others of theirs.

    :raises PartitionChangedError: when there are any
    :raises AirflowException: when that cannot be found out
    """
    try:
        yield
    except PartitionChangedError as error:
        _leave(context, error.begun)
        raise
    # First all leave theirs, then they look: of two at the same moment at least one sees the other.
    _leave(context, partition.of)
    refuse_other_partitions(context, partition)


def refuse_other_partitions(context: Context, partition: Partition) -> None:
    """See that no sibling began in another number of partitions.

    :raises PartitionChangedError: when one did
    :raises AirflowException: when that cannot be found out
    """
    from airflow.sdk.execution_time.xcom import XCom

    instance: Any = context["ti"]
    try:
        found = XCom.get_all(key=KEY, dag_id=instance.dag_id, task_id=instance.task_id, run_id=instance.run_id)
    except Exception as error:  # noqa: BLE001 - Airflow raises several kinds, and none may let a request leave
        raise _unavailable(error) from None
    others = sorted({count for count in found or () if count != partition.of})
    if not others:
        return
    # Should the number be changed back, what this task left must not be in the way.
    _leave(context, others[0])
    raise PartitionChangedError(
        f"Other task instances of this campaign began in {others[0]} partitions, and this one would be one of "
        f"{partition.of}. Each knows only whom it sent to itself, so recipients would be sent to twice. In this try "
        f"nothing was sent. Map it over partitions({others[0]}) again, or start a new run.",
        begun=others[0],
    )


def _leave(context: Context, count: int) -> None:
    try:
        context["ti"].xcom_push(key=KEY, value=count)
    except Exception as error:  # noqa: BLE001 - Airflow raises several kinds, and none may let a request leave
        raise _unavailable(error) from None


def _unavailable(error: Exception) -> AirflowException:
    return AirflowException(
        "In how many partitions this campaign was begun could not be stored or read as XCom "
        f"({type(error).__name__}). Nothing was sent."
    )
