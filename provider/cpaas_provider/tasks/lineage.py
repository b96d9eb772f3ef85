"""What OpenLineage shows of a campaign or contact sync: its sources, its results file, and the list of a sync."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from cpaas_provider.sources.base import Source


class WrittenList(NamedTuple):
    """The contact list that a sync wrote.

    :param columns: the source columns of each list column
    :param rows: the number of rows created, updated and deleted
    """

    base_url: str
    columns: Mapping[str, Iterable[str]]
    rows: int


class WrittenFile(NamedTuple):
    """A results file."""

    path: Any
    columns: Iterable[str]
    rows: int


class Lineage(NamedTuple):
    """What a task read and wrote."""

    sources: Iterable[Source]
    written: Iterable[WrittenList | WrittenFile]


def build_lineage(lineage: Lineage) -> Any:
    """Return the lineage of a task that has run, as an ``OperatorLineage``."""
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import Dataset, InputDataset

    datasets = dict.fromkeys(dataset for source in lineage.sources for dataset in _datasets_of(source))
    inputs: list[Dataset] = [InputDataset(*dataset) for dataset in datasets]
    outputs: list[Dataset] = [_output(written, inputs) for written in lineage.written]
    return OperatorLineage(inputs=inputs, outputs=outputs)


def _output(written: WrittenList | WrittenFile, inputs: Iterable[Any]) -> Any:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import column_lineage_dataset, output_statistics_output_dataset, schema_dataset

    facets: dict[str, Any] = {
        "schema": schema_dataset.SchemaDatasetFacet(
            fields=[schema_dataset.SchemaDatasetFacetFields(name=column) for column in written.columns]
        )
    }
    if isinstance(written, WrittenFile):
        dataset = _dataset_of_path(written.path)
    else:
        dataset = f"https://{urlsplit(written.base_url).hostname}", "lists/contact"
        facets["columnLineage"] = column_lineage_dataset.ColumnLineageDatasetFacet(
            fields={
                column: column_lineage_dataset.Fields(
                    inputFields=[
                        column_lineage_dataset.InputField(namespace=read.namespace, name=read.name, field=name)
                        for name in names
                        for read in inputs
                    ]
                )
                for column, names in written.columns.items()
            }
        )
    statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rowCount=written.rows)
    return OutputDataset(*dataset, facets=facets, outputFacets={"outputStatistics": statistics})


def _datasets_of(source: Any) -> Iterator[tuple[str, str]]:
    """Yield namespace and name of each file and database that a source reads, without credentials.

    A list in the DAG is no data set.
    """
    if (path := getattr(source, "path", None)) is not None:
        yield _dataset_of_path(path)
    elif conn_id := getattr(source, "conn_id", None):
        yield "airflow", f"connection/{conn_id}"
    # Sources that filter others.
    for name in ("source", "delivery_results", "results_path"):
        if (inner := getattr(source, name, None)) is not None:
            from cpaas_provider.sources import as_source

            yield from _datasets_of(as_source(inner))


def _dataset_of_path(path: Any) -> tuple[str, str]:
    from cpaas_provider.sources.files import redacted_path

    redacted = redacted_path(path)
    parts = urlsplit(redacted)
    if parts.scheme and parts.scheme != "file":
        return f"{parts.scheme}://{parts.netloc}", parts.path.lstrip("/")
    return "file", parts.path or redacted
