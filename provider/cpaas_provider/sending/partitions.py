"""Partitions: parts of a campaign by recipient, each sent by a mapped task. All duplicates are in one partition."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from msgspec import Struct

_MAX_PARTITIONS = 1_000


def partitions(count: int) -> list[dict[str, int]]:
    """Return ``count`` partitions of a campaign to map its operator over, as plain JSON.

    .. code-block:: python

        SmsCampaignOperator.partial(task_id="send", source=..., content=...).expand(partition=partitions(4))

    Each recipient belongs to one partition, and its duplicates belong to the same. Rate, concurrency and ``max_charge``
    are divided among the partitions. The count must stay the same for the retries and clears of a run, because each
    partition records only its own recipients.

    :param count: the number of partitions, 1 to 1,000
    """
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= _MAX_PARTITIONS:
        raise ValueError(f"partitions takes a whole number from 1 to {_MAX_PARTITIONS}.")
    return [{"part": part, "of": count} for part in range(count)]


class Partition(Struct, frozen=True):
    """One partition of a campaign.

    :param part: its number, from 0
    :param of: the number of partitions
    """

    part: int = 0
    of: int = 1

    @classmethod
    def read(cls, partition: Any) -> Partition:
        """Return the partition of an author's argument.

        :param partition: a value of ``partitions``; ``None`` for the whole campaign
        :raises ValueError: when it is not such a value
        """
        if partition is None:
            return cls()
        part, of = (partition.get("part"), partition.get("of")) if isinstance(partition, Mapping) else (None, None)
        if isinstance(part, int) and isinstance(of, int) and 0 <= part < of <= _MAX_PARTITIONS:
            return cls(part, of)
        raise ValueError("partition must be a value of partitions(count). Map the operator over these values.")

    @property
    def label(self) -> str | None:
        """The partition as logs and pages show it; ``None`` for the whole campaign."""
        return f"{self.part + 1} of {self.of}" if self.of > 1 else None

    def holds(self, address: str) -> bool:
        """Return whether a recipient belongs to this partition. It does not depend on a process or secret."""
        return int.from_bytes(blake2b(address.encode(), digest_size=8).digest()) % self.of == self.part
