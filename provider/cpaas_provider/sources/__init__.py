"""Rows as a stream: lists, data frames, files, queries, delivery events; each is loaded when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpaas_provider._common import lazy_names

if TYPE_CHECKING:
    from cpaas_provider.sources.csv_file import CsvSource as CsvSource
    from cpaas_provider.sources.delivery_events import DeliveryEventSource as DeliveryEventSource
    from cpaas_provider.sources.factory import as_source as as_source
    from cpaas_provider.sources.json_lines import JsonLinesSource as JsonLinesSource
    from cpaas_provider.sources.lists import DataFrameSource as DataFrameSource
    from cpaas_provider.sources.lists import ListSource as ListSource
    from cpaas_provider.sources.parquet import ParquetSource as ParquetSource
    from cpaas_provider.sources.phone_lookups import PhoneLookupSource as PhoneLookupSource
    from cpaas_provider.sources.sql import SqlSource as SqlSource

_HOMES = {
    "factory": ("as_source",),
    "csv_file": ("CsvSource",),
    "delivery_events": ("DeliveryEventSource",),
    "json_lines": ("JsonLinesSource",),
    "lists": ("DataFrameSource", "ListSource"),
    "parquet": ("ParquetSource",),
    "phone_lookups": ("PhoneLookupSource",),
    "sql": ("SqlSource",),
}

__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
