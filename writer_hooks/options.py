"""Options of the sink, validated in one place. An error names the invalid option."""

import difflib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from sluicegate.events.models import NAME_PATTERN, Assignment, SingleRegionReason
from sluicegate.kafka.topics import TopicNames
from sluicegate.lakes.capabilities import EVOLVE_VALUES, Evolve, evolving
from sluicegate.lakes.file_options import NAMES as FILE_NAMES
from sluicegate.lakes.file_options import BadFileOption, FileOptions
from sluicegate.lakes.port import TableRef, TableRefused
from sluicegate.lakes.registry import DEFAULT_FORMAT, adapter
from sluicegate.writer_hooks.attempt import Target
from sluicegate.writer_hooks.backpressure import NAMES as BACKPRESSURE
from sluicegate.writer_hooks.backpressure import Backpressure
from sluicegate.writer_hooks.clustering import cluster_by, refuse_cluster_by
from sluicegate.writer_hooks.errors import BadOption
from sluicegate.writer_hooks.kafka import PREFIX, KafkaSettings
from sluicegate.writer_hooks.option_values import seconds, truth, whole
from sluicegate.writer_hooks.region import DEFAULT_PREFIX, FOREVER, Region
from sluicegate.writer_hooks.upload.options import NAMES as UPLOAD_NAMES
from sluicegate.writer_hooks.upload.options import Uploads

NAME: Final = "sluicegate"
"""Name of the data source, for `format`."""
TABLE_PREFIX: Final = "table."
"""Prefix of options for the lake adapter, which receives them without it."""

_KNOWN: Final = (
    "stream",
    "region",
    "table",
    "path",
    "format",
    "topic.prefix",
    "event.time.column",
    "evolve",
    *FILE_NAMES,
    *BACKPRESSURE,
    "cluster.by",
    *UPLOAD_NAMES,
    "assignment",
    "assignment.after",
    "regions",
    "bounded",
    "sink",
    "owned",
    "registration.timeout",
    "publish.timeout",
    "message.max.bytes",
    "checkpointlocation",
    "queryname",
)
_NAME: Final = re.compile(NAME_PATTERN)
_SMALLEST_MESSAGE: Final = 16_384
_DEFAULT_MESSAGE: Final = 1_000_000  # below Kafka's default limit of 1,048,588
_DEFAULT_TIMEOUT: Final = 60.0  # seconds
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Validated options of `df.writeStream.format("sluicegate").option(...)`."""

    region: Region
    table: str
    """Location of the table."""
    format: str
    event_time_column: str | None
    checkpoint_location: str
    """Empty for a driver without Spark, which has none."""
    table_options: tuple[tuple[str, str], ...] = ()
    message_max_bytes: int = _DEFAULT_MESSAGE
    evolve: Evolve = "never"
    backpressure: Backpressure = field(default_factory=Backpressure)
    """Limits of completed checkpoints that are not committed."""
    files: FileOptions | None = None
    """Options of the data files; None: the table and the defaults decide."""
    cluster_by: tuple[str, ...] = ()
    """Columns by which the rows of a batch are moved together and sorted."""
    uploads: Uploads | None = None
    """Options of asynchronous uploads; None: each task uploads its own files."""

    @classmethod
    def parse(cls, given: Mapping[str, str], *, located: bool = True) -> "SinkOptions":
        """Parse options, whose names arrive in any case. Raises BadOption with all that is wrong.

        `located`: the option checkpointLocation is needed, as by each query of Spark.
        """
        if wrong := wrong_values(given, located=located):
            raise BadOption("; ".join(wrong))
        options = _lower(given)
        return cls(
            region=_region(options),
            table=_table(options),
            format=_format(options),
            event_time_column=options.get("event.time.column") or None,
            checkpoint_location=_location(options) if located else "",
            table_options=_table_options(options),
            message_max_bytes=_message_max_bytes(options),
            evolve=_evolve(options),
            backpressure=Backpressure.parse(options),
            files=_files(options),
            cluster_by=cluster_by(options),
            uploads=Uploads.parse(options),
        )

    def table_ref(self) -> TableRef:
        """Return the table as its adapter reads it. Raises BadOption."""
        return _table_ref(self.format, self.table, self.table_options)

    def target(self) -> Target:
        """Return what an attempt needs to know of the table. Raises BadOption."""
        return Target(
            adapter=adapter(self.format),
            table=self.table_ref(),
            event_time_column=self.event_time_column,
            message_max_bytes=self.message_max_bytes,
            evolve=self.evolve,
            files=self.files,
        )


def wrong_values(given: Mapping[str, str], *, located: bool = True) -> list[str]:
    """Return a sentence for each option that is missing, unknown or has an invalid value."""
    options, found = _lower(given), []
    for part in (*_PARTS, _location if located else refuse_cluster_by):
        try:
            part(options)
        except BadOption as error:
            found.append(str(error))
    # Some parts need the same option.
    return list(dict.fromkeys(found))


def table_of(given: Mapping[str, str]) -> tuple[str, TableRef, str | None, Evolve, FileOptions | None]:
    """Return format, table, column of the event time, `evolve` and options of files.

    The other options may be anything.

    Raises BadOption.
    """
    options = _lower(given)
    column = options.get("event.time.column") or None
    return _format(options), _named_table(options), column, _evolve(options), _files(options)


def log_of(given: Mapping[str, str]) -> tuple[KafkaSettings, TopicNames]:
    """Return Kafka and the topics, whatever the other options are. Raises BadOption."""
    options = _lower(given)
    return KafkaSettings.from_options(options), TopicNames(_topic_prefix(options))


def location_of(given: Mapping[str, str]) -> str:
    """Return the checkpoint location, whatever the other options are. Raises BadOption."""
    return _location(_lower(given))


def _lower(given: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in given.items()}


def _location(options: Mapping[str, str]) -> str:
    return _required(options, "checkpointlocation", "set it on the query itself, not in the session")


def _message_max_bytes(options: Mapping[str, str]) -> int:
    return whole(options, "message.max.bytes", _DEFAULT_MESSAGE, _SMALLEST_MESSAGE)


def _named_table(options: Mapping[str, str]) -> TableRef:
    return _table_ref(_format(options), _table(options), _table_options(options))


@lru_cache(maxsize=64)
def _table_ref(table_format: str, text: str, options: tuple[tuple[str, str], ...]) -> TableRef:
    try:
        return adapter(table_format).parse_table(text, dict(options))
    except TableRefused as error:
        named = [name for name, _ in options if re.search(rf"option {re.escape(name)}\b", str(error))]
        shown = f"{TABLE_PREFIX}{named[0]}" if named else "table"
        lacks = "" if named or "option" not in str(error) else f". Here, its name begins with {TABLE_PREFIX}"
        raise BadOption(f"the option {shown} cannot be used: {error}{lacks}") from error


def _format(options: Mapping[str, str]) -> str:
    return options.get("format", DEFAULT_FORMAT)


def _evolve(options: Mapping[str, str]) -> Evolve:
    match options.get("evolve", "never").strip().lower():
        case "never":
            return "never"
        case "add-columns":
            return _evolving(options)
        case other:
            raise BadOption(f"the option evolve must be {' or '.join(EVOLVE_VALUES)}: {other!r}")


def _evolving(options: Mapping[str, str]) -> Evolve:
    """Return `add-columns`. Raises BadOption if the table's format cannot do that."""
    try:
        evolving(adapter(_format(options)))
    except TableRefused as error:
        raise BadOption(f"the option evolve cannot be add-columns: {error}") from error
    return "add-columns"


def _files(options: Mapping[str, str]) -> FileOptions | None:
    try:
        return FileOptions.parse(options)
    except BadFileOption as error:
        raise BadOption(str(error)) from error


def _table_options(options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    own = [(name, value) for name, value in options.items() if name.startswith(TABLE_PREFIX)]
    return tuple(sorted((name.removeprefix(TABLE_PREFIX), value) for name, value in own))


def _require_known(options: Mapping[str, str]) -> None:
    """Refuse all unknown names in one error. Raises BadOption."""
    wrong = [name for name in options if name not in _KNOWN and not name.startswith((PREFIX, TABLE_PREFIX))]
    if not wrong:
        return
    told = [f"{name}{_meant(name)}" for name in sorted(wrong)]
    noun = "options" if len(told) > 1 else "option"
    raise BadOption(
        f"unknown {noun} {', '.join(told)}; known are {', '.join(_KNOWN[:-2])}, checkpointLocation, "
        f"{PREFIX}* (the Kafka client) and {TABLE_PREFIX}* (the table format)"
    )


def _meant(name: str) -> str:
    close = difflib.get_close_matches(name, [*_KNOWN, f"{PREFIX}bootstrap.servers"], n=1)
    shown = {"checkpointlocation": "checkpointLocation", "queryname": "queryName"}
    return f" (did you mean {shown.get(close[0], close[0])}?)" if close else ""


def _region(options: Mapping[str, str]) -> Region:
    return Region(
        stream=_stream(options),
        name=_region_name(options),
        kafka=KafkaSettings.from_options(options),
        assignment=Assignment(
            number=_number(options),
            regions=_regions(options),
            after=whole(options, "assignment.after", 0, 0),
        ),
        bounded=truth(options, "bounded"),
        single_region=_single_region(options),
        owned=truth(options, "owned", default="true"),
        table=_named_table(options).location,
        topic_prefix=_topic_prefix(options),
        publish_timeout=seconds(options, "publish.timeout", _DEFAULT_TIMEOUT),
        registration_timeout=_registration_timeout(options),
    )


def _stream(options: Mapping[str, str]) -> str:
    return require_name("stream", _required(options, "stream", "one job's output into one table"))


def _region_name(options: Mapping[str, str]) -> str:
    return require_name("region", _required(options, "region", "the failure domain that this query is"))


def _topic_prefix(options: Mapping[str, str]) -> str:
    return require_name("topic.prefix", options.get("topic.prefix", DEFAULT_PREFIX))


def _regions(options: Mapping[str, str]) -> tuple[str, ...]:
    region = _region_name(options)
    regions = tuple(part.strip() for part in options.get("regions", region).split(","))
    for part in regions:
        require_name("regions", part)
    if region not in regions or len(set(regions)) != len(regions):
        raise BadOption(
            f"the option regions must list each region of the stream once, with the query's own, {region}: "
            f"{options['regions']!r}; correct the option region or the option regions"
        )
    return regions


def _number(options: Mapping[str, str]) -> int:
    if "," in options.get("regions", "") and "assignment" not in options:
        raise BadOption(
            "the option assignment is missing: with several regions it numbers their list; "
            "raise it whenever the list changes"
        )
    return whole(options, "assignment", 0, 0)


def _single_region(options: Mapping[str, str]) -> SingleRegionReason | None:
    match options.get("sink", "independent"):
        case "independent":
            return None
        case "all-to-all" | "shared-files" as reason:
            return reason
        case other:
            raise BadOption(f"the option sink must be independent, all-to-all or shared-files: {other!r}")


def _table(options: Mapping[str, str]) -> str:
    table, path = options.get("table"), options.get("path")
    if table is not None and path is not None and table != path:
        raise BadOption(f"the options table ({table}) and path ({path}) both name a table; keep one")
    location = table or path
    if not location:
        raise BadOption("the option table is missing: the location of the table (start(path) sets it too)")
    host = urlsplit(location).netloc if location.startswith("file:") else ""
    if host not in ("", "localhost"):
        raise BadOption(
            f"the option table names the folder of another machine, {host}: {location}; mount it here and "
            "give its path, or use three slashes for a folder of this machine: file:///..."
        )
    if not location.startswith("/") and not _SCHEME.match(location):
        raise BadOption(
            f"the option table is relative, so that the driver and its workers may see different folders: "
            f"{location}; give an absolute path or a URI"
        )
    return location


def _required(options: Mapping[str, str], name: str, meaning: str) -> str:
    value = options.get(name, "").strip()
    if not value:
        shown = "checkpointLocation" if name == "checkpointlocation" else name
        raise BadOption(f"the option {shown} is missing: {meaning}")
    return value


def require_name(option: str, value: str) -> str:
    """Return a value that is a name of the protocol. Raises BadOption."""
    if not _NAME.fullmatch(value):
        raise BadOption(
            f"the option {option} must consist of letters, digits, _ . - (at most 200, not beginning with "
            f". or -): {value!r}"
        )
    return value


def _registration_timeout(options: Mapping[str, str]) -> float:
    name = "registration.timeout"
    if options.get(name, "").strip().lower() == FOREVER:
        return math.inf
    try:
        return seconds(options, name, _DEFAULT_TIMEOUT)
    except BadOption as error:
        raise BadOption(f"{error}; or {FOREVER}") from None


_PARTS: Final[tuple[Callable[[Mapping[str, str]], object], ...]] = (
    _require_known,
    _stream,
    _region_name,
    _regions,
    _number,
    lambda options: whole(options, "assignment.after", 0, 0),
    _named_table,
    KafkaSettings.from_options,
    _topic_prefix,
    _single_region,
    lambda options: truth(options, "bounded"),
    lambda options: truth(options, "owned", default="true"),
    lambda options: seconds(options, "publish.timeout", _DEFAULT_TIMEOUT),
    _registration_timeout,
    _message_max_bytes,
    _evolve,
    _files,
    cluster_by,
    Uploads.parse,
    Backpressure.parse,
)
"""Functions that each read one part of the options, and raise BadOption."""
