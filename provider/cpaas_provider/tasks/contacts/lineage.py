"""What OpenLineage shows of a contact sync: the source, the list, which column fills which, and the counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from cpaas_provider.sources.base import Source


class SyncLineage(NamedTuple):
    """What a sync read and wrote.

    :param columns: the source columns of each list column
    """

    source: Source
    base_url: str
    columns: Mapping[str, Iterable[str]]
    report: Mapping[str, Any]


def lineage_of(found: SyncLineage) -> Any:
    """Return the lineage of a sync that has run, as an ``OperatorLineage``."""
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import Dataset, InputDataset, OutputDataset
    from openlineage.client.facet_v2 import column_lineage_dataset, output_statistics_output_dataset, schema_dataset

    source, base_url, column_sources, report = found
    read = InputDataset(*_place_of(source))
    fields = {
        column: column_lineage_dataset.Fields(
            inputFields=[
                column_lineage_dataset.InputField(namespace=read.namespace, name=read.name, field=name)
                for name in sources
            ]
        )
        for column, sources in column_sources.items()
    }
    written = OutputDataset(
        f"https://{urlsplit(base_url).hostname}",
        "lists/contact",
        facets={
            "schema": schema_dataset.SchemaDatasetFacet(
                fields=[schema_dataset.SchemaDatasetFacetFields(name=column) for column in column_sources]
            ),
            "columnLineage": column_lineage_dataset.ColumnLineageDatasetFacet(fields=fields),
        },
        outputFacets={
            "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                rowCount=report["created"] + report["updated"] + report["deleted"]
            )
        },
    )
    inputs: list[Dataset] = [read]
    outputs: list[Dataset] = [written]
    return OperatorLineage(inputs=inputs, outputs=outputs)


def _place_of(source: Any) -> tuple[str, str]:
    """Return namespace and name of a source, without credentials."""
    path = getattr(source, "path", None)
    if path is not None:
        from cpaas_provider.sources.files import redacted_path

        place = redacted_path(path)
        parts = urlsplit(place)
        if parts.scheme and parts.scheme != "file":
            return f"{parts.scheme}://{parts.netloc}", parts.path.lstrip("/")
        return "file", parts.path or place
    conn_id = getattr(source, "conn_id", None)
    return ("airflow", f"connection/{conn_id}") if conn_id else ("airflow", str(source))
