"""The numbering plans of the phonenumbers library, without its parser.

The plans are plain data, one module for each region. The library's package imports its parser, its matcher and short
numbers before any of its modules can be imported, and compiling their patterns takes as long as sending a message. So
this module has the library's folder as its own path, and imports the plans from there. Where that fails, it takes them
from the library itself.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phonenumbers import PhoneMetadata

_NO_REGION = "001"
"""Stands for the codes that belong to no region, such as those of satellite phones."""


def _load() -> tuple[type[PhoneMetadata], Mapping[int, tuple[str, ...]]]:
    try:
        data: Any = importlib.import_module(f"{__name__}.data")
        metadata: Any = importlib.import_module(f"{__name__}.phonemetadata")
        plans = metadata.PhoneMetadata, data._COUNTRY_CODE_TO_REGION_CODE
    except (ImportError, AttributeError):
        # A version of the library with other modules.
        from phonenumbers import COUNTRY_CODE_TO_REGION_CODE, PhoneMetadata

        return PhoneMetadata, COUNTRY_CODE_TO_REGION_CODE
    return plans


_spec = importlib.util.find_spec("phonenumbers")
# A module with a path is a package to Python.
__path__ = list(_spec.submodule_search_locations or ()) if _spec is not None else []

NumberingPlan, REGIONS = _load()
"""The class that has the plan of each region, and the regions of each country code, the main one first."""
SUPPORTED_REGIONS = frozenset(chain.from_iterable(REGIONS.values())) - {_NO_REGION}
