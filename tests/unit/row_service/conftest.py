from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.row_service import RowService


@pytest.fixture
def client(service: RowService) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {service.api_key}"}
    with httpx.Client(base_url=service.url, headers=headers, trust_env=False, verify=False) as running:
        yield running
