"""Bodies of the HTTP interface, version 1, and its OpenAPI document. Times are milliseconds since 1970."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict
from pydantic.json_schema import models_json_schema

from sluicegate.events.models import SnapshotRef
from sluicegate.events.schemas import DocumentedSchema
from sluicegate.state_store import StreamView


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class Outage(_Answer):
    """A server that does not answer, so that a part of the answer is old."""

    part: Literal["kafka", "redis", "history"]
    """`history`: the cuts and the dead letters, which are read from Kafka."""
    message: str
    """Sentences: the server and its address, what is affected, and what helps."""
    since: int
    """Time of its last answer, for which the old values hold."""


class Deployment(_Answer):
    """The coordinators of one group."""

    group: str
    host: str
    """Name of the host of the coordinator that answers."""
    topic_prefix: str
    shared: bool
    """True: the streams of all coordinators are shown, from Redis. False: those of this one only."""
    problem: str | None
    """Reason for which a part of the answer is missing or old; null: there is none."""
    outages: tuple[Outage, ...] = ()
    now: int
    """Time of the coordinator."""


class Delays(_Answer):
    """Times from the last event of a commit to the moment when it was visible, in milliseconds."""

    p50: int
    p99: int
    commits: int
    """Number of newest commits that they were measured with."""


class Reason(_Answer):
    """Something that keeps a stream from progress."""

    kind: Literal["stall", "refusal", "failed", "silent", "late", "retry", "letter", "pause", "wait"]
    """`failed`: the driver of a region has given its work up. `silent`: heartbeats of a region are missing.
    `late`: commits wait for a region for long, or nothing is completed although drivers are alive.
    `letter`: a message could not be used."""
    code: str
    region: str | None = None
    """Null: it concerns the whole stream."""
    message: str
    """Sentences: what happened, why, and what helps. Commands stand between backticks."""
    since: int | None = None
    """Time of its beginning; null: not known."""


class StreamState(_Answer):
    """State of one stream."""

    stream: str
    live: bool
    """True: the values are of now, by the coordinator that serves the stream."""
    own: bool = False
    """True: this coordinator serves the stream. It is not live while its log is read, or Kafka is away."""
    reasons: tuple[Reason, ...] = ()
    """Reasons why it does not progress, one for each cause, the gravest first."""
    pending_bytes: int | None = None
    """Bytes of the files that are in no decision; null: another coordinator knows them."""
    delays: Delays | None = None
    """Null: no commit is known whose delay was measured."""
    committed_at: int | None = None
    """Time at which its newest commit was announced; null: the history does not reach so far."""
    view: StreamView


class RegionOfCut(_Answer):
    """One region in one cut."""

    state: Literal["moved", "fell back", "idle"]
    """`moved`: the cut includes new checkpoints of it. `fell back`: it was late, and stayed where it was."""
    incarnation: str | None = None
    checkpoint: int | None = None
    """The checkpoint that it stands at after the cut; null: nothing of it is committed."""
    fallbacks: int = 0
    """Number of cuts in a row with which it fell back, as far as the history reaches."""
    since: int | None = None
    """Time of the cut with which it reached its position; null: the history does not reach so far."""


class Cut(_Answer):
    """Outcome of one attempt to commit."""

    id: str
    """Id of its message on the commits topic."""
    time: int
    """Time of that message."""
    outcome: Literal["full", "forced", "partial", "reverted", "abandoned"]
    decision: int
    attempt: int | None = None
    """Of an abandoned one, which has no decision: the number of attempts since the last decision."""
    snapshot: SnapshotRef | None = None
    watermark: int | None = None
    files: int | None = None
    rows: int | None = None
    bytes: int | None = None
    partitions: int | None = None
    first_event: int | None = None
    sealed: int | None = None
    decided: int | None = None
    visible: int | None = None
    delay: int | None = None
    """Milliseconds between `sealed` and `visible`."""
    regions: dict[str, RegionOfCut] = {}


class PendingCheckpoint(_Answer):
    """A checkpoint that no decision includes."""

    region: str
    incarnation: str
    checkpoint: int
    named: int | None
    """Number of events that its completion names; null: it is not completed."""
    arrived: int
    """Number of its events that have arrived."""
    attempts: int | None
    """Number of attempts of writers whose events have arrived; null: there are too many to count."""
    files: int
    rows: int
    bytes: int | None = None
    first_event: int
    last_event: int
    sealed_at: int | None = None
    """Time of the event that sealed it; null: it is not sealed."""
    missing: tuple[str, ...] = ()
    """Ids of named events that have not arrived, ten at most."""
    missing_count: int = 0


class DeadLetter(_Answer):
    """A message that could not be used."""

    id: str
    offset: int
    """Offset in the dead-letter topic, for `sluicegate dead-letters show --offset`."""
    time: int
    stream: str | None
    code: str
    reason: str
    source: str
    dealt: str | None = None
    """`retried` or `dropped` by an operator; null: it waits."""


class Streams(_Answer):
    """Answer of `/api/v1/streams`."""

    deployment: Deployment
    streams: tuple[StreamState, ...]


class Cuts(_Answer):
    """Answer of `/api/v1/streams/{stream}/cuts`, the oldest first."""

    stream: str
    cuts: tuple[Cut, ...]


class Checkpoints(_Answer):
    """Answer of `/api/v1/streams/{stream}/checkpoints`."""

    stream: str
    checkpoints: tuple[PendingCheckpoint, ...]
    """Those that no decision includes."""


class DeadLetters(_Answer):
    """Answer of `/api/v1/dead-letters`, the oldest first."""

    letters: tuple[DeadLetter, ...]


class Problem(_Answer):
    """Answer in place of one that cannot be given."""

    problem: str


# The OpenAPI document, made from these models.

_MODELS: Final = (Streams, StreamState, Cuts, Checkpoints, DeadLetters, Problem)
_REFERENCE: Final = "#/components/schemas/{model}"
_STREAM: Final = {"name": "stream", "in": "path", "required": True, "schema": {"type": "string"}}
_LAST: Final = {
    "name": "last",
    "in": "query",
    "description": "Number of cuts, the newest ones.",
    "schema": {"type": "integer", "minimum": 1, "maximum": 50, "default": 50},
}
_REGIONS: Final = {
    "name": "regions",
    "in": "query",
    "description": "False: the cuts come without their regions.",
    "schema": {"type": "boolean", "default": True},
}


def document() -> dict[str, Any]:
    """Return the document as JSON values."""
    _, schemas = models_json_schema(
        [(model, "serialization") for model in _MODELS],
        ref_template=_REFERENCE,
        schema_generator=DocumentedSchema,
    )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Sluicegate",
            "version": "1",
            "description": "State and history of streams. It only reads. Fields may be added.",
        },
        "paths": {
            "/api/v1/streams": _get("The streams of the deployment.", Streams),
            "/api/v1/streams/{stream}": _get("One stream.", StreamState, _STREAM),
            "/api/v1/streams/{stream}/cuts": _get(
                "Its newest cuts, the oldest first.", Cuts, _STREAM, _LAST, _REGIONS
            ),
            "/api/v1/streams/{stream}/checkpoints": _get(
                "Its checkpoints that are in no decision, from its coordinator.",
                Checkpoints,
                _STREAM,
            ),
            "/api/v1/dead-letters": _get("The newest dead letters, the oldest first.", DeadLetters),
        },
        "components": {"schemas": schemas["$defs"]},
    }


def _get(summary: str, model: type[BaseModel], *parameters: Mapping[str, Any]) -> dict[str, Any]:
    refused = {"description": "The reason.", **_content(Problem)}
    failures = {"404": refused} if _STREAM in parameters else {}
    failures |= {"400": refused} if _LAST in parameters else {}
    answer = {"200": {"description": summary, **_content(model)}, **failures}
    return {"get": {"summary": summary, "parameters": list(parameters), "responses": answer}}


def _content(model: type[BaseModel]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": {"$ref": _REFERENCE.format(model=model.__name__)}}}}
