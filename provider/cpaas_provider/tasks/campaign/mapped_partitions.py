"""The partitions of a mapped campaign: one number, and each partition in one task instance, or they send nothing.

Each task instance reads the partition it began with from its own journal. A task instance that a larger number has
added has no journal. So each of them pushes its partition as an XCom, where the others of the run read it. Airflow
deletes the XComs of a task instance when its next try begins. So what it pushed is in its task state, too, and the next
try pushes it before anything of that try can fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from cpaas_provider.sending.errors import PartitionChangedError
from cpaas_provider.sending.journal.hashing import KeyedHasher
from cpaas_provider.sending.journal.store import storage_error
from cpaas_provider.sending.partitions import Partition
from cpaas_provider.tasks.airflow.store import open_task_state
from cpaas_provider.tasks.errors import PreflightError

if TYPE_CHECKING:
    from airflow.sdk import Context

    from cpaas_provider.sending.journal.store import StateStore
    from cpaas_provider.tasks.campaign.spec import CampaignSpec

KEY = "cpaas_partitions"
"""The key of the XCom, and of its copy in the task state."""

_NO_PART = -1
"""The part of a task instance that sends to no recipient. Its number of partitions still counts."""


class MappedPartitions(Struct, frozen=True):
    """The partitions of the task instances of one mapped campaign.

    :param campaign: a hash of what they send: an operator may be mapped over several contents, too
    :param one_number: whether all must have the same number of partitions
    """

    context: Context
    campaign: str
    one_number: bool

    def begin(self, partition: Partition) -> None:
        """Push the partition of this task instance, and check those of the others.

        Each pushes its own before it reads the others. So of two task instances at once, at least one sees the other.

        :raises PartitionChangedError: when another one began with another number, or has the same partition
        :raises PreflightError: when the XCom cannot be used
        """
        self.push(partition)
        self.check(partition)

    def check(self, partition: Partition) -> None:
        """Check the partitions of the other task instances.

        :raises PartitionChangedError: when another one began with another number, or has the same partition
        :raises PreflightError: when the XCom cannot be used
        """
        others = self._others()
        numbers = sorted({other["of"] for other in others if other["of"] != partition.of})
        if numbers and self.one_number:
            # The XCom of this task must not refuse the others if the author changes the number back.
            self.push(Partition(_NO_PART, numbers[0]))
            raise PartitionChangedError(
                f"Other task instances of this campaign began with {numbers[0]} partitions, and this one has "
                f"{partition.of}. Each partition records only its own recipients, so some recipients would be sent to "
                "twice. Nothing was sent in this try. Map the operator over "
                f"partitions({numbers[0]}) again, or start a new run.",
                begun=Partition(_NO_PART, numbers[0]),
            )
        wanted = self._value(partition)
        same = [other["map_index"] for other in others if {**other, "map_index": wanted["map_index"]} == wanted]
        if same:
            self.push(Partition(_NO_PART, partition.of))
            raise PartitionChangedError(
                f"The task instance with map index {same[0]} has the same partition as this one: partition "
                f"{partition.part} of {partition.of}. Its recipients would be sent to twice. Nothing was sent in this "
                f"try. Map the operator over partitions({partition.of}), each of them once.",
                begun=partition,
            )

    def record(self, partition: Partition, store: StateStore) -> None:
        """Store the partition for later tries, before the journal has its first request.

        :raises JournalUnavailableError: when it cannot be stored
        """
        try:
            store.set(KEY, self._value(partition))
        except Exception as error:  # noqa: BLE001 - Airflow raises several kinds, and after none may a request leave
            raise storage_error(error, "stored, so nothing was sent") from None

    def push(self, partition: Partition) -> None:
        """Push the partition that this task instance began with.

        :raises PreflightError: when the XCom cannot be used
        """
        try:
            self.context["ti"].xcom_push(key=KEY, value=self._value(partition))
        except Exception as error:  # noqa: BLE001 - Airflow raises several kinds, and none may let a request leave
            raise _unavailable(error) from None

    def _value(self, partition: Partition) -> dict[str, Any]:
        return {
            "map_index": self.context["ti"].map_index,
            "part": partition.part,
            "of": partition.of,
            "campaign": self.campaign,
        }

    def _others(self) -> list[dict[str, Any]]:
        from airflow.sdk.execution_time.xcom import XCom

        instance: Any = self.context["ti"]
        try:
            found = XCom.get_all(key=KEY, dag_id=instance.dag_id, task_id=instance.task_id, run_id=instance.run_id)
        except Exception as error:  # noqa: BLE001 - Airflow raises several kinds, and none may let a request leave
            raise _unavailable(error) from None
        return [other for other in found or () if other["map_index"] != instance.map_index]


def push_begun(context: Context) -> None:
    """Push the partition that an earlier try of a task instance began with, if there is one.

    :raises PreflightError: when it cannot be read or pushed
    """
    instance: Any = context["ti"]
    store = open_task_state(context)
    if store is None or instance.try_number == 1 or (instance.map_index or 0) < 0:
        return
    try:
        begun = store.get(KEY)
        if begun is not None:
            instance.xcom_push(key=KEY, value=begun)
    except Exception as error:  # noqa: BLE001 - Airflow raises several kinds, and none may let a request leave
        raise _unavailable(error) from None


def campaign_hash(spec: CampaignSpec, secret: str) -> str:
    """Return the hash of a message and its recipients: the same for all partitions of one campaign."""
    named = {
        "operation": spec.operation,
        "sender_id": spec.sender_id,
        "recipient_column": spec.recipient_column,
        "body": _plain(spec.body),
        "source": _plain(spec.source),
    }
    return KeyedHasher(secret, ("partitions",)).body(named)


def _plain(value: Any) -> Any:
    """Return a value as data that is equal in all task instances, and a value of another kind as its type."""
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "template_fields"):
        # A source.
        return {"kind": type(value).__name__, **_plain(vars(value))}
    return type(value).__name__


def _unavailable(error: Exception) -> PreflightError:
    return PreflightError(
        f"The XCom with the partitions of this campaign could not be stored or read ({type(error).__name__}). "
        "Nothing was sent. The task can be retried.",
        permanent=False,
    )
