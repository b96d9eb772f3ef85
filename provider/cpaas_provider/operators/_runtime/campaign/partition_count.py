"""The number of partitions of a mapped campaign: the same in all of its task instances, or they send nothing.

Each task instance reads the number it began with from its own journal. A task instance that a larger number has added
has no journal. So each of them pushes the number as an XCom, where the others of the run read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cpaas_provider.operators._runtime.errors import PreflightError
from cpaas_provider.sending.errors import PartitionChangedError

if TYPE_CHECKING:
    from airflow.sdk import Context

    from cpaas_provider.sending.partitions import Partition

KEY = "cpaas_partitions"


def check_partition_count(context: Context, partition: Partition) -> None:
    """Check that no other task instance began with another number of partitions.

    :raises PartitionChangedError: when one did
    :raises PreflightError: when the XCom cannot be used
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
    # The number of this task must not refuse the others if the author changes the number back.
    push_partition_count(context, others[0])
    raise PartitionChangedError(
        f"Other task instances of this campaign began with {others[0]} partitions, and this one has {partition.of}. "
        "Each partition records only its own recipients, so some recipients would be sent to twice. Nothing was sent "
        f"in this try. Map the operator over partitions({others[0]}) again, or start a new run.",
        begun=others[0],
    )


def push_partition_count(context: Context, count: int) -> None:
    """Push the number of partitions that this task instance began with.

    :raises PreflightError: when the XCom cannot be used
    """
    try:
        context["ti"].xcom_push(key=KEY, value=count)
    except Exception as error:  # noqa: BLE001 - Airflow raises several kinds, and none may let a request leave
        raise _unavailable(error) from None


def _unavailable(error: Exception) -> PreflightError:
    return PreflightError(
        "The XCom with the number of partitions of this campaign could not be stored or read "
        f"({type(error).__name__}). Nothing was sent. The task can be retried.",
        permanent=False,
    )
