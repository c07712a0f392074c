"""Region of a writer, its incarnations, and the events that the writer publishes for it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple
from uuid import uuid4

from pydantic import ValidationError

from sluicegate.events.envelope import NO_CHECKPOINT, Envelope, EventType, with_counts
from sluicegate.events.files import FileTooLarge, attempt_label, split_files
from sluicegate.events.models import (
    LONGEST_REASON,
    Assignment,
    Body,
    CheckpointFailed,
    FilesWritten,
    Planned,
    Position,
    RegionClosed,
    RegionHeartbeat,
    RegionRegistered,
)
from sluicegate.kafka.settings import Connection, Text, UnusableFile, plain
from sluicegate.kafka.topics import TopicNames
from sluicegate.writer_hooks.errors import BadOption, EventTooLarge

# --- connection to Kafka, from options named as in Kafka's own clients --------------------------------

KAFKA_PREFIX: Final = "kafka."

_SECURITY: Final = {
    "sasl.kerberos.service.name": "kerberos_service_name",
    "sasl.mechanism": "mechanism",
    "sasl.oauth.token.client": "token_client",
    "sasl.oauth.token.extensions": "token_extensions",
    "sasl.oauth.token.file": "token_file",
    "sasl.oauth.token.region": "token_region",
    "sasl.oauth.token.scope": "token_scope",
    "sasl.oauth.token.secret.file": "token_secret_file",
    "sasl.oauth.token.source": "token_source",
    "sasl.oauth.token.url": "token_url",
    "sasl.password": "password",
    "sasl.password.file": "password_file",
    "sasl.username": "username",
    "security.protocol": "protocol",
    "ssl.ca.location": "ca_file",
    "ssl.certificate.location": "certificate_file",
    "ssl.key.location": "key_file",
    "ssl.key.password": "key_password",
    "ssl.key.password.file": "key_password_file",
}
_FIELDS: Final = {
    "bootstrap.servers": "bootstrap_servers",
    "client.id": "client_id",
    "compression.type": "compression_type",
    "request.timeout.ms": "request_timeout",
    **_SECURITY,
}
_OPTIONS: Final = {field: f"{KAFKA_PREFIX}{option}" for option, field in _FIELDS.items()}


class KafkaSettings(Connection):
    """Connection of the hooks to Kafka. Pickled to executors.

    A secret that a file holds is read on the machine that connects, and does not travel.
    """

    client_id: Text = "sluicegate-hooks"
    compression_type: Literal["zstd", "lz4", "gzip", "none"] = "zstd"

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> "KafkaSettings":
        """Read the options that start with `kafka.`. Raises BadOption for what is unknown or malformed."""
        given: dict[str, Any] = {}
        security: dict[str, Any] = {}
        for option, value in options.items():
            name = option.lower().removeprefix(KAFKA_PREFIX)
            if not option.lower().startswith(KAFKA_PREFIX):
                continue
            if name not in _FIELDS:
                raise BadOption(
                    f"unknown option {KAFKA_PREFIX}{name}; known are "
                    f"{KAFKA_PREFIX}{{{', '.join(sorted(_FIELDS))}}}"
                )
            (security if name in _SECURITY else given)[_FIELDS[name]] = value
        if "request_timeout" in given:
            given["request_timeout"] = _request_timeout(given["request_timeout"])
        try:
            return cls.model_validate({**given, "security": security})
        except ValidationError as error:
            raise BadOption("; ".join(_problems(error, {**given, **security}))) from None

    def client_options(self) -> dict[str, Any]:
        """Return the keyword arguments of all clients of aiokafka. Reads files; raises BadOption."""
        try:
            return super().client_options()
        except UnusableFile as error:
            raise BadOption(f"the option {_OPTIONS[error.field]}: {_with_options(error.problem)}") from error


def _request_timeout(milliseconds: str) -> float:
    if not (milliseconds.isascii() and milliseconds.isdigit() and int(milliseconds)):
        name = _OPTIONS["request_timeout"]
        raise BadOption(f"the option {name} must be a whole number above 0: {milliseconds!r}")
    return int(milliseconds) / 1000


def _problems(error: ValidationError, given: Mapping[str, Any]) -> list[str]:
    found = []
    for detail in error.errors(include_url=False, include_input=False):
        field = str(detail["loc"][-1])
        option = _OPTIONS.get(field)
        if option is None:
            found.append(_with_options(plain(detail["msg"])))
        elif field not in given:
            found.append(f"the option {option} is missing: host:port, several with commas")
        else:
            shown = "" if "password" in field or field == "token_url" else f": {given[field]!r}"
            found.append(f"the option {option} {plain(detail['msg'])}{shown}")
    return found


def _with_options(text: str) -> str:
    """Put the names of options in the places of the names of fields."""
    return re.sub(r"`(\w+)`", lambda found: _OPTIONS[found[1]], text)


# --- region, incarnation, attempt, and their events ---------------------------------------------------

DEFAULT_PREFIX: Final = "sluicegate"
LONGEST_OFFSETS: Final = 65_536
"""Characters of the source offsets that a completion may carry."""
FOREVER: Final = "forever"
"""Value of the option registration.timeout that waits without limit."""


class Event(NamedTuple):
    """An event of the log, not encoded yet."""

    envelope: Envelope
    body: Body


class Registered(NamedTuple):
    """An accepted registration of this driver process."""

    incarnation: str
    run: str
    """Id of the registration."""


class Live(NamedTuple):
    """The live incarnation of a region, with the registration of its newest run, as of one answer."""

    incarnation: str | None
    run: str | None
    answered: frozenset[str] = frozenset()
    """Ids of the registrations of the region whose answers were read up to this one."""


@dataclass(frozen=True, slots=True)
class Region:
    """A region of a stream, with its Kafka topics and timeouts."""

    stream: str
    name: str
    kafka: KafkaSettings
    assignment: Assignment
    bounded: bool = False
    table: str | None = None
    """URI of the table's folder, in the form that the coordinator compares; None: unknown."""
    tables: tuple[str, ...] = ()
    """Names of the further tables that the job writes."""
    topic_prefix: str = DEFAULT_PREFIX
    publish_timeout: float = 60.0
    """Seconds in which Kafka must acknowledge published events."""
    registration_timeout: float = 60.0
    """Seconds in which a coordinator must answer a registration; infinite: no limit."""

    @property
    def start_limit(self) -> tuple[float, str]:
        """Seconds in which Kafka must answer while the region starts, and the option that sets them."""
        return min(
            (self.registration_timeout, "registration.timeout"), (self.publish_timeout, "publish.timeout")
        )

    @property
    def events_topic(self) -> str:
        """Topic for the events of the region."""
        return TopicNames(self.topic_prefix).events

    @property
    def commits_topic(self) -> str:
        """Topic with the coordinator's answers."""
        return TopicNames(self.topic_prefix).commits

    def event(
        self,
        kind: EventType,
        incarnation: str,
        body: Body,
        *,
        checkpoint: int = NO_CHECKPOINT,
        writer: str = "",
        attempt: str = "",
    ) -> Event:
        """Return an event of this region with a new id."""
        place = (self.stream, self.name, incarnation, checkpoint)
        return Event(Envelope(str(uuid4()), kind, *place, writer, attempt), body)

    def heartbeat(
        self,
        registered: Registered,
        *,
        idle: bool = False,
        after: int | None = None,
        begins: int | None = None,
        interval: int | None = None,
    ) -> Event:
        """Return a heartbeat of a registered driver. Its arguments are those of RegionHeartbeat."""
        body = RegionHeartbeat(idle=idle, after=after, begins=begins, interval=interval, run=registered.run)
        return self.event(EventType.REGION_HEARTBEAT, registered.incarnation, body)

    def declining(self, registered: Registered, checkpoint: int, code: str, reason: str) -> Event:
        """Return the event that says that a checkpoint will not be completed soon; no secrets in `reason`."""
        body = CheckpointFailed(
            outcome="declined", run=registered.run, code=code, reason=reason[:LONGEST_REASON]
        )
        return self.event(EventType.CHECKPOINT_FAILED, registered.incarnation, body, checkpoint=checkpoint)

    def closing(self, registered: Registered, final: int | None) -> Event:
        """Return the event that ends the region after its final checkpoint; None: it has none."""
        body = RegionClosed(final=final, run=registered.run)
        return self.event(EventType.REGION_CLOSED, registered.incarnation, body)

    def registration(
        self,
        incarnation: str,
        base: Position | None,
        *,
        planned: Sequence[Planned] = (),
        replaces: str | None = None,
        probe: bool = False,
        rests: bool = False,
    ) -> Event:
        """Return the event that asks to add checkpoints of an incarnation to the stream.

        With `probe` it asks for the answer alone, and changes nothing. With `rests` the region is idle
        whenever nothing of it is pending.
        """
        body = RegionRegistered(
            base=base,
            replaces=replaces,
            planned=tuple(planned),
            assignment=self.assignment,
            table=self.table,
            tables=self.tables,
            bounded=self.bounded,
            probe=probe,
            rests=rests,
        )
        return self.event(EventType.REGION_REGISTERED, incarnation, body)


@dataclass(frozen=True, slots=True)
class Attempt:
    """Identity of one writer attempt."""

    incarnation: str
    checkpoint: int
    writer: str
    id: str = field(default_factory=lambda: uuid4().hex)
    """Random for each try. It distinguishes the files and events of different tries of a writer."""
    table: str = ""
    """Further table of the stream that it writes to; empty: the stream's own."""


def label_of(region: Region, attempt: Attempt) -> str:
    """Return the label that the file names of the attempt contain."""
    return attempt_label(
        region.stream, region.name, attempt.incarnation, attempt.checkpoint, attempt.writer, attempt.id
    )


def files_written(
    region: Region, attempt: Attempt, body: FilesWritten, limit: int, *, with_facts: bool = False
) -> list[Event]:
    """Return events that list the files of an attempt, each small enough for a message of `limit` bytes.

    `with_facts`: also after the facts of its files are added.

    Raises EventTooLarge if a single file's description exceeds the limit.
    """
    try:
        parts = split_files(body, limit, with_facts=with_facts)
    except FileTooLarge as error:
        raise EventTooLarge(f"{error}; the option message.max.bytes must follow it") from error
    return [file_event(region, attempt, part) for part in parts]


def add_facts(events: Sequence[Event], facts: Mapping[str, Mapping[str, str]]) -> tuple[Event, ...]:
    """Return events of files with the facts of their files, by the paths of these."""
    return tuple(_add_facts(*event, facts) for event in events)


def _add_facts(envelope: Envelope, body: Body, facts: Mapping[str, Mapping[str, str]]) -> Event:
    if not isinstance(body, FilesWritten):
        return Event(envelope, body)
    own = {file.path: dict(facts[file.path]) for file in body.files if facts.get(file.path)}
    return Event(envelope, body.model_copy(update={"facts": own}))


def file_event(region: Region, attempt: Attempt, body: FilesWritten) -> Event:
    """Return the event with files of an attempt, with a new id."""
    envelope, _ = region.event(
        EventType.FILES_WRITTEN,
        attempt.incarnation,
        body,
        checkpoint=attempt.checkpoint,
        writer=attempt.writer,
        attempt=attempt.id,
    )
    return Event(with_counts(envelope._replace(table=attempt.table), body), body)
