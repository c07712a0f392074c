"""Run events of OpenLineage, made from outcomes. A repetition of an outcome makes the same events."""

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final
from urllib.parse import unquote, urlsplit

import attr
from openlineage.client.event_v2 import Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    DatasetFacet,
    OutputDatasetFacet,
    RunFacet,
    dataset_version_dataset,
    job_type_job,
    nominal_time_run,
    output_statistics_output_dataset,
    processing_engine_run,
    storage_dataset,
)
from openlineage.client.naming import dataset as naming
from openlineage.client.serde import Serde

import sluicegate
from sluicegate.events.models import CommitSummary, CutReverted, SnapshotRef, TableSummary
from sluicegate.events.notifications import Committed
from sluicegate.listeners.port import Outcome, Stream

PRODUCER: Final = "urn:sluicegate:coordinator"
"""URI of the producer of the events."""
NAMED: Final = 100
"""Regions that a facet names at most."""
_RUNS: Final = uuid.uuid5(uuid.NAMESPACE_URL, PRODUCER)
_SCHEMES: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}
"""Other names of schemes, by which one table would have two names."""


@attr.define
class CommitRunFacet(RunFacet):
    """The decision that a run is: facet `sluicegate_commit`."""

    decision: int = attr.field(default=0)
    """Number of the decision in its stream."""
    full: bool | None = attr.field(default=None)
    """False: regions stayed at their position; None: the decision was reverted."""
    watermark: int | None = attr.field(default=None)
    """Watermark of the cut, in milliseconds since the Unix epoch."""
    partitions: int | None = attr.field(default=None)
    """Number of partitions of all tables that got files."""
    regionsMoved: int | None = attr.field(default=None)
    """Number of regions whose position changed."""
    regionsFallenBack: list[str] = attr.field(factory=list)
    """Regions that stayed at their position, at most 100 of them."""
    previousSnapshot: str | None = attr.field(default=None)
    """Version of the table before the decision."""
    sealedAt: str | None = attr.field(default=None)
    """Time at which the last checkpoint of the cut was complete."""
    decidedAt: str | None = attr.field(default=None)
    """Time of the decision."""


def run_id(namespace: str, stream: Stream, outcome: Outcome) -> str:
    """Return the id of the run that a decision is. Each repetition, and each coordinator, makes the same."""
    place = (namespace, stream.name, stream.table.location, stream.commit_user)
    return str(uuid.uuid5(_RUNS, "\n".join((*place, str(outcome.decision), outcome.id))))


def dataset_name(location: str) -> tuple[str, str]:
    """Return namespace and name of a table by the naming of OpenLineage, from the URI of its folder."""
    parts = urlsplit(location)
    path = unquote(parts.path).rstrip("/")
    if parts.scheme in ("", "file"):
        local = naming.LocalFileSystem(path)
        return local.get_namespace(), local.get_name()
    return f"{_SCHEMES.get(parts.scheme, parts.scheme)}://{parts.netloc}", path.lstrip("/")


def run_events(namespace: str, stream: Stream, outcome: Outcome) -> list[tuple[str, bytes]]:
    """Return the events of the start and of the end of the run that an outcome is: kind, and JSON.

    A savepoint has none: it has no decision of its own.
    """
    body = outcome.body
    if isinstance(body, Committed):
        summary = body.summary
        ended = outcome.time if summary is None else summary.visible
        known = () if summary is None else (summary.first_event, summary.sealed, summary.decided)
        begun = min((ended, *(each for each in known if each is not None)))
        run = Run(run_id(namespace, stream, outcome), _run_facets(body))
        outputs, end = _outputs(stream, body), RunState.COMPLETE
    elif isinstance(body, CutReverted):
        begun = ended = outcome.time
        facets = {"processing_engine": _engine(), "sluicegate_commit": _facet(decision=body.decision)}
        run = Run(run_id(namespace, stream, outcome), facets)
        outputs, end = [OutputDataset(*dataset_name(stream.table.location))], RunState.ABORT
    else:
        return []
    kind = job_type_job.JobTypeJobFacet("STREAMING", "SLUICEGATE", jobType="COMMIT", producer=PRODUCER)
    job = Job(namespace, stream.name, {"jobType": kind})
    return [
        (state.value, Serde.to_json(_event(_time(at), state, run, job, outputs)).encode())
        for at, state in ((begun, RunState.START), (ended, end))
    ]


def _event(time: str, state: RunState, run: Run, job: Job, outputs: list[OutputDataset]) -> RunEvent:
    return RunEvent(
        eventTime=time, eventType=state, run=run, job=job, inputs=[], outputs=outputs, producer=PRODUCER
    )


def _run_facets(body: Committed) -> dict[str, RunFacet]:
    summary = body.summary
    facets: dict[str, RunFacet] = {"processing_engine": _engine(), "sluicegate_commit": _commit(body)}
    if summary is not None and summary.first_event is not None:
        end = None if summary.sealed is None else _time(summary.sealed)
        facets["nominalTime"] = nominal_time_run.NominalTimeRunFacet(
            _time(summary.first_event), end, producer=PRODUCER
        )
    return facets


def _engine() -> RunFacet:
    return processing_engine_run.ProcessingEngineRunFacet(
        sluicegate.__version__, "sluicegate", producer=PRODUCER
    )


def _facet(**fields: object) -> RunFacet:
    return CommitRunFacet(producer=PRODUCER, **fields)  # type: ignore[arg-type]


def _commit(body: Committed) -> RunFacet:
    found: Mapping[str, object] = {} if body.summary is None else _of_summary(body.summary)
    return _facet(
        decision=body.decision,
        full=not body.fallbacks,
        watermark=body.watermark,
        regionsFallenBack=sorted(body.fallbacks)[:NAMED],
        **found,
    )


def _of_summary(summary: CommitSummary) -> dict[str, object]:
    return {
        "partitions": summary.total("partitions"),
        "regionsMoved": len(summary.moved),
        "previousSnapshot": None if summary.previous is None else _version(summary.previous),
        "sealedAt": None if summary.sealed is None else _time(summary.sealed),
        "decidedAt": None if summary.decided is None else _time(summary.decided),
    }


def _outputs(stream: Stream, body: Committed) -> list[OutputDataset]:
    """Return the table that the listener belongs to, and the further tables that the commit touches."""
    summary, location = body.summary, stream.table.location
    own = TableSummary(table=location) if summary is None else summary
    further = {} if summary is None else summary.tables
    if not further:
        own = own.model_copy(update={"files": body.files})
    heads = {name: each.snapshot for name, each in body.tables.items()}
    return [
        _output(stream, location, body.snapshot, own),
        *(_output(stream, each.table, heads.get(name), each) for name, each in sorted(further.items())),
    ]


def _output(stream: Stream, location: str, head: SnapshotRef | None, content: TableSummary) -> OutputDataset:
    facets: dict[str, DatasetFacet] = {
        "storage": storage_dataset.StorageDatasetFacet(stream.format, "parquet", producer=PRODUCER)
    }
    if head is not None:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(
            _version(head), producer=PRODUCER
        )
    counts: dict[str, OutputDatasetFacet] = {
        "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=content.rows, size=content.bytes, fileCount=content.files, producer=PRODUCER
        )
    }
    return OutputDataset(*dataset_name(location), facets=facets, outputFacets=counts)


def _version(head: SnapshotRef) -> str:
    return str(head.id)


def _time(millis: int) -> str:
    """Return a time as ISO 8601 in UTC, with milliseconds."""
    return (
        datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )
