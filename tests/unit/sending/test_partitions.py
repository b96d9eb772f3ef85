"""Parts of a campaign: nobody in two of them, nobody in none, the same in every process."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from cpaas_provider.sending.partitions import Partition, partitions
from tests.reading import NIGERIAN
from tests.unit.sending.campaign.parts import phones

PARTS = [Partition.read(one) for one in partitions(4)]


def part_of(address: str) -> list[int]:
    return [one.part for one in PARTS if one.holds(address)]


def test_every_recipient_is_in_exactly_one_partition() -> None:
    assert {len(part_of(one)) for one in phones(2000)} == {1}


def test_partitions_are_about_equal() -> None:
    sizes = [sum(one.holds(phone) for phone in phones(8000)) for one in PARTS]
    assert max(sizes) - min(sizes) < 250


def test_number_written_in_several_forms_is_in_one_partition() -> None:
    ways = ["08031200000", "+234 803 120 0000", "2348031200000", 8031200000]
    assert len({tuple(part_of(NIGERIAN.read(one))) for one in ways}) == 1


def test_another_process_makes_the_same_partitions() -> None:
    code = (
        "from cpaas_provider.sending.partitions import Partition\n"
        "print([Partition(2, 4).holds(str(2348031200000 + n)) for n in range(50)])"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == str([PARTS[2].holds(str(2348031200000 + number)) for number in range(50)])


def test_single_partition_holds_every_recipient() -> None:
    assert all(Partition.read(one).holds("2348031200000") for one in (None, *partitions(1)))


@pytest.mark.parametrize("count", [0, -1, 1001, 2.0, "4", True, None])
def test_invalid_number_of_partitions_is_refused(count: Any) -> None:
    with pytest.raises(ValueError, match="1 to 1000"):
        partitions(count)


@pytest.mark.parametrize(
    "given",
    [{}, {"part": 4, "of": 4}, {"part": -1, "of": 4}, {"part": 0, "of": 1001}, 3, [0, 4], {"part": "0", "of": 4}],
)
def test_invalid_partition_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match=r"partitions\(count\)"):
        Partition.read(given)
