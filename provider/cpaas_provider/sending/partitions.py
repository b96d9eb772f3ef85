"""A campaign in several parts, each for a task of its own: by the recipient, so that duplicates meet in one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

_MOST = 1_000


def partitions(count: int) -> list[dict[str, int]]:
    """Return ``count`` parts to map a campaign operator over, as plain JSON.

    .. code-block:: python

        SmsCampaignOperator.partial(task_id="send", source=..., content=...).expand(partition=partitions(4))

    Rate, concurrency and budget of the connection and the operator are divided among them. The count must stay the
    same for the retries and clears of a run: each part knows only its own recipients.

    :param count: how many, 1 to 1,000
    """
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= _MOST:
        raise ValueError(f"partitions takes a whole number from 1 to {_MOST}.")
    return [{"part": part, "of": count} for part in range(count)]


@dataclass(frozen=True)
class Partition:
    """One part of a campaign.

    :param part: which, from 0
    :param of: of how many
    """

    part: int = 0
    of: int = 1

    @classmethod
    def read(cls, given: Any) -> Partition:
        """Return a part as ``partitions`` writes it; the whole where none is given.

        :raises ValueError: when it is none
        """
        if given is None:
            return cls()
        part, of = (given.get("part"), given.get("of")) if isinstance(given, Mapping) else (None, None)
        if isinstance(part, int) and isinstance(of, int) and 0 <= part < of <= _MOST:
            return cls(part, of)
        raise ValueError("partition must be a value of partitions(count). Map the operator over these values.")

    def holds(self, address: str) -> bool:
        """Tell whether a recipient belongs to this part; the same in every process and for every secret."""
        if self.of == 1:
            return True
        return int.from_bytes(blake2b(address.encode(), digest_size=8).digest()) % self.of == self.part
