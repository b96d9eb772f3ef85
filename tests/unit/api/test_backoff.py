"""Delays grow, are bounded, and differ."""

from __future__ import annotations

import pytest

from cpaas_provider.api.backoff import backoff


@pytest.mark.parametrize(("failures", "seconds"), [(1, 0.5), (2, 1.0), (5, 8.0), (8, 30.0), (10_000, 30.0)])
@pytest.mark.parametrize("jitter", [0.0, 0.5, 1.0])
def test_delay_doubles_up_to_its_maximum_with_the_requested_jitter(
    failures: int, seconds: float, jitter: float
) -> None:
    delays = [backoff(failures, 0.5, 30.0, jitter=jitter) for _ in range(200)]
    assert all(seconds * (1 - jitter) <= delay <= seconds for delay in delays)
    assert (len(set(delays)) > 100) is (jitter > 0)


def test_full_jitter_uses_the_whole_range() -> None:
    delays = [backoff(3, 1.0) for _ in range(500)]
    assert min(delays) < 1 < 3 < max(delays)


def test_delay_without_a_bound_is_finite_after_any_number_of_failures() -> None:
    assert backoff(1_000_000, 1.0) <= 2**16
