"""Task groups: operators and sensors that give a guarantee only together. Imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpaas_provider._common import lazy_names

if TYPE_CHECKING:
    from cpaas_provider.task_groups.fallback import deliver_with_fallback as deliver_with_fallback
    from cpaas_provider.task_groups.undelivered import UndeliveredSource as UndeliveredSource

_HOMES = {"fallback": ("deliver_with_fallback",), "undelivered": ("UndeliveredSource",)}

__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
