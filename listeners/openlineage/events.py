"""Run events of OpenLineage, made from outcomes. A repetition of an outcome makes the same events."""

import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import attr
import requests
import yaml
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
from openlineage.client.transport.file import FileConfig, FileTransport
from openlineage.client.transport.http import HttpConfig, HttpTransport, TokenProvider
from openlineage.client.transport.kafka import KafkaConfig

import sluicegate
from sluicegate.events.models import CommitSummary, CutReverted, SnapshotRef
from sluicegate.events.notifications import Committed
from sluicegate.listeners.openlineage.listener import OpenLineageOptions
from sluicegate.listeners.port import Done, Failed, ListenerUnready, Outcome, Result, Stream, Unknown

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
    """Number of partitions of the table that got files."""
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


def run_events(namespace: str, stream: Stream, outcome: Outcome) -> tuple[RunEvent, ...]:
    """Return the events of the start and of the end of the run that an outcome is.

    A savepoint has none: it has no decision of its own.
    """
    body = outcome.body
    if isinstance(body, Committed):
        summary = body.summary
        ended = outcome.time if summary is None else summary.visible
        known = () if summary is None else (summary.first_event, summary.sealed, summary.decided)
        begun = min((ended, *(each for each in known if each is not None)))
        run = Run(run_id(namespace, stream, outcome), _run_facets(body))
        outputs, end = [_output(stream, body)], RunState.COMPLETE
    elif isinstance(body, CutReverted):
        begun = ended = outcome.time
        facets = {"processing_engine": _engine(), "sluicegate_commit": _facet(decision=body.decision)}
        run = Run(run_id(namespace, stream, outcome), facets)
        outputs, end = [OutputDataset(*dataset_name(stream.table.location))], RunState.ABORT
    else:
        return ()
    kind = job_type_job.JobTypeJobFacet("STREAMING", "SLUICEGATE", jobType="COMMIT", producer=PRODUCER)
    job = Job(namespace, stream.name, {"jobType": kind})
    return tuple(
        RunEvent(
            eventTime=_time(at),
            eventType=state,
            run=run,
            job=job,
            inputs=[],
            outputs=outputs,
            producer=PRODUCER,
        )
        for at, state in ((begun, RunState.START), (ended, end))
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
        "partitions": summary.partitions,
        "regionsMoved": len(summary.moved),
        "previousSnapshot": None if summary.previous is None else _version(summary.previous),
        "sealedAt": None if summary.sealed is None else _time(summary.sealed),
        "decidedAt": None if summary.decided is None else _time(summary.decided),
    }


def _output(stream: Stream, body: Committed) -> OutputDataset:
    facets: dict[str, DatasetFacet] = {
        "storage": storage_dataset.StorageDatasetFacet(stream.format, "parquet", producer=PRODUCER)
    }
    if body.snapshot is not None:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(
            _version(body.snapshot), producer=PRODUCER
        )
    summary = body.summary
    counts: dict[str, OutputDatasetFacet] = {
        "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=None if summary is None else summary.rows,
            size=None if summary is None else summary.bytes,
            fileCount=body.files,
            producer=PRODUCER,
        )
    }
    return OutputDataset(*dataset_name(stream.table.location), facets=facets, outputFacets=counts)


def _version(head: SnapshotRef) -> str:
    return str(head.id)


def _time(millis: int) -> str:
    """Return a time as ISO 8601 in UTC, with milliseconds."""
    return (
        datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


# Ways of an event to its destination, by the configuration of OpenLineage's client library.
#
# The transports of the library are used where they raise for what is not delivered. That of Kafka only logs
# it, so the producer is asked here. That of HTTP follows redirects with GET, so it gets a session that
# refuses.

_SHOWN: Final = 200
_ONCE: Final = {"total": 0}
"""The host of the listeners tries again, so that a failure is shown."""
_DELIVERY: Final = 30_000
"""Milliseconds for one event on its way to Kafka."""

_LONGEST: Final = 600.0
"""Seconds for one event on its way to Kafka, whatever its settings are."""

Sender = Callable[[RunEvent], Result]
"""Send one event. It blocks."""


class FileToken(TokenProvider):
    """The key of a file, which is read for each request."""

    def __init__(self, path: Path) -> None:
        super().__init__({})
        self._path = path

    def get_bearer(self) -> str:
        """Return the value of the header. Raises OSError."""
        return f"Bearer {self._path.read_text(encoding='utf-8').strip()}"


def open_sender(options: OpenLineageOptions) -> Sender:
    """Return the sender of some settings. Raises ListenerUnready with the way out."""
    if options.config_file is not None:
        return _configured(options.config_file)
    config = HttpConfig(
        url=options.url or "", endpoint=options.endpoint, timeout=options.timeout, retry=dict(_ONCE)
    )
    if options.api_key_file is not None:
        config.auth = FileToken(options.api_key_file)
        try:
            config.auth.get_bearer()
        except (OSError, UnicodeDecodeError) as error:
            raise ListenerUnready(
                f"api_key_file {options.api_key_file} cannot be read ({error}); write the key into it"
            ) from error
    return _http(config)


def _configured(path: Path) -> Sender:
    example = "write `transport:` with `type: http`, `kafka` or `file` into it"
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ListenerUnready(f"config_file {path} cannot be read ({error}); {example}") from error
    if not isinstance(found, dict) or not isinstance(found.get("transport"), dict):
        raise ListenerUnready(f"config_file {path} has no section `transport`; {example}")
    if others := sorted(map(str, found.keys() - {"transport"})):
        raise ListenerUnready(f"config_file {path} has sections without effect here: {others}; remove them")
    section = {str(name): value for name, value in found["transport"].items()}
    kind = section.pop("type", None)
    makers = {"http": _http_of, "file": _file_of, "kafka": _kafka_of}
    if kind not in makers:
        raise ListenerUnready(
            f"config_file {path} has the transport {kind!r}, which cannot report a failure; {example}"
        )
    try:
        return makers[kind](section)
    except (ValueError, TypeError, KeyError, RuntimeError, ImportError) as error:
        raise ListenerUnready(f"config_file {path}: {kind} is not usable ({error}); correct it") from error


# --- the transports ----------------------------------------------------------------------------


def _http_of(section: dict[str, Any]) -> Sender:
    return _http(HttpConfig.from_dict({"retry": dict(_ONCE), **section}))


def _refuse_redirect(answer: requests.Response, **_: Any) -> None:
    if answer.is_redirect:
        raise requests.HTTPError("a redirect", response=answer)


def _http(config: HttpConfig) -> Sender:
    config.session = requests.Session()
    config.session.hooks["response"].append(_refuse_redirect)
    transport = HttpTransport(config)

    def send(event: RunEvent) -> Result:
        try:
            transport.emit(event)
        except requests.HTTPError as error:
            answer = error.response
            code = "an error" if answer is None else f"{answer.status_code} {answer.reason}"
            return Failed(f"{config.url} answered {code[:_SHOWN]}. Look at the log of that server.")
        except (requests.RequestException, OSError) as error:
            reason = str(error)[:_SHOWN]
            return Unknown(f"{config.url} gave no answer ({reason}). Start it, or correct `url`.")
        return Done()

    return send


def _file_of(section: dict[str, Any]) -> Sender:
    config = FileConfig.from_dict({"append": True, **section})
    transport = FileTransport(config)

    def send(event: RunEvent) -> Result:
        try:
            transport.emit(event)
        except (OSError, RuntimeError) as error:
            return Unknown(f"{error}. Make room, or correct the path.")
        return Done()

    return send


def _kafka_of(section: dict[str, Any]) -> Sender:
    from confluent_kafka import Producer

    config = KafkaConfig.from_dict(section)
    settings = {"enable.idempotence": True, "delivery.timeout.ms": _DELIVERY, **config.config}
    opened: list[Producer] = []

    def send(event: RunEvent) -> Result:
        if not opened:
            opened.append(Producer(settings))
        # The order of the events of a job is that of its partition.
        key = config.messageKey or f"run:{event.job.namespace}/{event.job.name}"
        return _produce(opened[0], config.topic, key, Serde.to_json(event).encode())

    return send


def _produce(producer: Any, topic: str, key: str, value: bytes) -> Result:
    """Wait until Kafka has a record. Without its acknowledgement, the record may be there."""
    from confluent_kafka import KafkaException

    judged: list[str] = []
    try:
        # An error of this client cannot be compared with None.
        producer.produce(
            topic, value, key, on_delivery=lambda error, _: judged.append("" if error is None else str(error))
        )
        producer.flush(_LONGEST)
    except (KafkaException, BufferError) as error:
        judged.append(str(error))
    if judged == [""]:
        return Done()
    reasons = "; ".join(judged)[:_SHOWN]
    return Unknown(f"Kafka has not acknowledged the event for {topic} ({reasons}). Look at that Kafka.")
