"""What the package of sources names is there; tests/unit/test_import_cost.py sees what it costs."""

from __future__ import annotations

import cpaas_provider.sources


def test_everything_it_names_is_there() -> None:
    assert cpaas_provider.sources.__all__ == [
        "CsvSource",
        "DataFrameSource",
        "DeliveryEventSource",
        "JsonLinesSource",
        "ListSource",
        "ParquetSource",
        "PhoneLookupSource",
        "SqlSource",
        "as_source",
    ]
    for name in cpaas_provider.sources.__all__:
        assert getattr(cpaas_provider.sources, name)
