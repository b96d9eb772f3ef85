"""The databases, the receiver and the pages of the delivery model, which this model shares."""

from __future__ import annotations

# As a fixture.
from tests.unit.delivery.tracking.model.conftest import setting as setting
