"""Sensors. Each is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpaas_provider._common import lazy_names

if TYPE_CHECKING:
    from cpaas_provider.sensors.delivery import DeliverySensor as DeliverySensor
    from cpaas_provider.sensors.otp import OtpStatusSensor as OtpStatusSensor

_HOMES = {"delivery": ("DeliverySensor",), "otp": ("OtpStatusSensor",)}

__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
