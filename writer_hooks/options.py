"""Options of the sink, validated in one place. An error names the invalid option."""

import difflib
import math
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import ByteSize, TypeAdapter, ValidationError

from sluicegate.events.models import MOST_FURTHER_TABLES, NAME_PATTERN, Assignment
from sluicegate.kafka.topics import TopicNames
from sluicegate.lakes import Adapter
from sluicegate.lakes.capabilities import EVOLVE_VALUES, Evolve, OpensGroups, evolving
from sluicegate.lakes.file_options import NAMES as FILE_NAMES
from sluicegate.lakes.file_options import BadFileOption, FileOptions
from sluicegate.lakes.port import TableRef, TableRefused
from sluicegate.lakes.registry import DEFAULT_FORMAT, adapter
from sluicegate.lakes.sequence import KIND_OPTION, Numbers, Upserts
from sluicegate.texts import counted
from sluicegate.writer_hooks.errors import BadOption
from sluicegate.writer_hooks.region import (
    DEFAULT_PREFIX,
    FOREVER,
    KAFKA_PREFIX,
    Attempt,
    KafkaSettings,
    Region,
)

if TYPE_CHECKING:
    from sluicegate.lakes.spooled import Wrap


# --- values. Names of options are in lower case; an error names the option ----------------------------

_TRUTH: Final = {"true": True, "false": False}


def whole(options: Mapping[str, str], name: str, default: int, lowest: int, highest: float = math.inf) -> int:
    """Return a whole number. Raises BadOption."""
    value = options.get(name)
    if value is None:
        return default
    if not (value.isascii() and value.isdigit() and lowest <= int(value) <= highest):
        most = "" if highest == math.inf else f" to {highest}"
        raise BadOption(f"the option {name} must be a whole number from {lowest}{most}: {value!r}")
    return int(value)


def seconds(options: Mapping[str, str], name: str, default: float) -> float:
    """Return a number of seconds above 0. Raises BadOption."""
    value = options.get(name)
    if value is None:
        return default
    try:
        found = float(value)
    except ValueError:
        found = math.nan
    if not 0 < found < math.inf:
        raise BadOption(f"the option {name} must be a number of seconds above 0: {value!r}")
    return found


def truth(options: Mapping[str, str], name: str, default: str = "false") -> bool:
    """Return a truth value. Raises BadOption."""
    value = options.get(name, default).strip().lower()
    if value not in _TRUTH:
        raise BadOption(f"the option {name} must be true or false: {value!r}")
    return _TRUTH[value]


# --- backpressure: limits on what is completed and not committed --------------------------------------
#
# Nothing is lost beyond a limit. But each uncommitted checkpoint keeps the log, and readers of the table
# wait for it. A limit makes that visible, or stops the source until commits follow.

Reaction = Literal["wait", "fail"]

PATIENCE: Final = 5.0
"""Seconds for a coordinator to answer a writer that is over a limit. Without an answer it asks again."""
FIRST_QUESTION: Final = 5.0
QUESTIONS: Final = 30.0

_MAX_CHECKPOINTS: Final = "max.uncommitted.checkpoints"
_MAX_AGE: Final = "max.uncommitted.age"
_REACTION: Final = "backpressure"
BACKPRESSURE_OPTIONS: Final = (_MAX_CHECKPOINTS, _MAX_AGE, _REACTION)
"""Options of a limit."""


@dataclass(slots=True)
class Repetition:
    """Times of something that is done again, at intervals that double up to a limit."""

    at: float
    """Seconds at which it is due."""
    pause: float
    longest: float = math.inf

    def is_due(self, now: float) -> bool:
        """Return True if it is due, which begins the next interval."""
        if now < self.at:
            return False
        self.at, self.pause = now + self.pause, min(2 * self.pause, self.longest)
        return True


def questions(reaction: Reaction, now: float) -> Repetition:
    """Return the times at which a writer over a limit asks the coordinator for its committed position.

    Commits arrive by notification, so a short wait asks nothing.
    """
    first = FIRST_QUESTION if reaction == "wait" else 0.0
    return Repetition(now + first, FIRST_QUESTION, QUESTIONS)


@dataclass(frozen=True, slots=True)
class Backpressure:
    """Limits of a region; without one, it never waits for commits."""

    max_checkpoints: int | None = None
    """The most completed checkpoints that are not committed."""
    max_age: float | None = None
    """Seconds that the oldest of them may wait."""
    reaction: Reaction = "wait"
    """Beyond a limit: wait before the next checkpoint, or fail."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "Backpressure":
        """Read the options, whose names are in lower case. Raises BadOption."""
        count = whole(options, _MAX_CHECKPOINTS, 0, 1) or None
        age = seconds(options, _MAX_AGE, 0.0) or None
        reaction = options.get(_REACTION, "wait").strip().lower()
        if _REACTION in options and count is None and age is None:
            raise BadOption(f"the option {_REACTION} needs a limit: set {_MAX_CHECKPOINTS} or {_MAX_AGE} too")
        if reaction not in ("wait", "fail"):
            raise BadOption(f"the option {_REACTION} must be wait or fail: {reaction!r}")
        return cls(count, age, "fail" if reaction == "fail" else "wait")

    @property
    def is_limited(self) -> bool:
        """True if there is a limit."""
        return self.max_checkpoints is not None or self.max_age is not None

    def excess(self, completed: Mapping[int, float], now: float) -> str | None:
        """Return the limit that is exceeded, as a text; None if there is none.

        `completed`: by number, the times at which the uncommitted checkpoints were completed, in seconds by
        the clock of `now`.
        """
        if self.max_checkpoints is not None and len(completed) >= self.max_checkpoints:
            return (
                f"not committed: {counted(len(completed), 'completed checkpoint')}, and "
                f"max.uncommitted.checkpoints is {self.max_checkpoints}"
            )
        age = now - min(completed.values(), default=now)
        if self.max_age is not None and age > self.max_age:
            return (
                f"checkpoint {min(completed)} is not committed after {age:.0f} s, and max.uncommitted.age is "
                f"{self.max_age:g} s"
            )
        return None


# --- asynchronous uploads: tasks leave files to an uploader -------------------------------------------

UPLOAD: Final = "upload"
UPLOAD_SPOOL, UPLOAD_BYTES = "upload.spool", "upload.max.bytes"
UPLOAD_THREADS, UPLOAD_TIMEOUT = "upload.threads", "upload.timeout"
BEFORE_PUBLISH: Final = "before.publish"
_UPLOAD_DETAILS: Final = (UPLOAD_SPOOL, UPLOAD_BYTES, UPLOAD_THREADS, UPLOAD_TIMEOUT, BEFORE_PUBLISH)
UPLOAD_OPTIONS: Final = (UPLOAD, *_UPLOAD_DETAILS)

_SIZE: Final = TypeAdapter(ByteSize)
_DEFAULT_BYTES: Final = 16 << 30
_DEFAULT_THREADS: Final = 4
_MOST_THREADS: Final = 64
_DEFAULT_UPLOAD_TIMEOUT: Final = 3600.0
_FUNCTION: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_FOR_LOG: Final = ("topic.prefix", "publish.timeout")


@dataclass(frozen=True, slots=True)
class Uploads:
    """Options of a job whose files an uploader sends."""

    spool: str | None = None
    """Folder on the machine of each task; None: one for this user below its folder of temporary files."""
    max_bytes: int = _DEFAULT_BYTES
    """Bytes of waiting files on a machine, from which on no task begins to write."""
    threads: int = _DEFAULT_THREADS
    """Attempts that are uploaded at the same time, on each machine."""
    timeout: float = _DEFAULT_UPLOAD_TIMEOUT
    """Seconds after a completion in which all its events must arrive; later, its files count as lost."""
    before_publish: str | None = None
    """Function `module:function` of a local file and its final URI, called before the file is uploaded. An
    uploader calls it until it succeeds."""
    log: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Options of the connection to Kafka, for the uploader. They may contain a password."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self | None:
        """Return the options of names in lower case; None if tasks upload themselves. Raises BadOption."""
        if not _is_async(options):
            allowed = (BEFORE_PUBLISH, UPLOAD_TIMEOUT) if BEFORE_PUBLISH in options else ()
            named = [name for name in _UPLOAD_DETAILS if name in options and name not in allowed]
            if named:
                raise BadOption(
                    f"the option {named[0]} is for asynchronous uploads; set {UPLOAD} to async, or leave "
                    f"{', '.join(named)} out"
                )
            return None
        _require_absolute_files(options)
        return cls(
            _spool_folder(options),
            _spool_bytes(options),
            whole(options, UPLOAD_THREADS, _DEFAULT_THREADS, 1, _MOST_THREADS),
            seconds(options, UPLOAD_TIMEOUT, _DEFAULT_UPLOAD_TIMEOUT),
            _before_publish(options),
            tuple((name, value) for name, value in options.items() if _is_for_log(name)),
        )

    def spool_folder(self) -> str:
        """Return the folder on this machine."""
        return self.spool or default_spool()


@dataclass(frozen=True, slots=True)
class Work:
    """The user's work on each file of a task, which uploads its files itself."""

    function: str
    """Function `module:function`, as that of `Uploads.before_publish`."""
    timeout: float
    """Seconds in which a function that fails is called again; later, the attempt of the task fails."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self | None:
        """Return the work that tasks do themselves; None if there is none. Raises BadOption."""
        if _is_async(options) or (function := _before_publish(options)) is None:
            return None
        return cls(function, seconds(options, UPLOAD_TIMEOUT, _DEFAULT_UPLOAD_TIMEOUT))


def _is_async(options: Mapping[str, str]) -> bool:
    way = options.get(UPLOAD, "sync").strip().lower()
    if way not in ("sync", "async"):
        raise BadOption(f"the option {UPLOAD} must be sync or async: {options[UPLOAD]!r}")
    return way == "async"


def default_spool() -> str:
    """Return the folder of this user on this machine."""
    return os.path.join(tempfile.gettempdir(), f"sluicegate-uploads-{os.geteuid()}")


def resolve_function(function: str) -> Callable[[str, str], object]:
    """Return the function of a name `module:function`. Raises BadOption."""
    if not _FUNCTION.fullmatch(function):
        raise BadOption(f"the option {BEFORE_PUBLISH} must be module:function: {function!r}")
    module, _, name = function.partition(":")
    try:
        found = getattr(import_module(module), name, None)
    except Exception as error:  # whatever a module of the user raises
        raise BadOption(
            f"the option {BEFORE_PUBLISH} names the module {module}, which cannot be imported here "
            f"({type(error).__name__}: {error}); install it on the driver and on all executors"
        ) from error
    if not callable(found):
        raise BadOption(
            f"the option {BEFORE_PUBLISH}: the module {module} has no function {name}; correct the name"
        )
    return found  # type: ignore[no-any-return]


def _is_for_log(name: str) -> bool:
    return name.startswith("kafka.") or name in _FOR_LOG


def _require_absolute_files(options: Mapping[str, str]) -> None:
    """Refuse files that an uploader would not find: it has another working folder than a task."""
    for name, value in options.items():
        if name.startswith("kafka.") and name.endswith((".file", ".location")) and not os.path.isabs(value):
            raise BadOption(
                f"the option {name} must be an absolute path with asynchronous uploads, of a file that stays "
                f"when an executor ends: {value!r}"
            )


def _spool_folder(options: Mapping[str, str]) -> str | None:
    given = options.get(UPLOAD_SPOOL)
    if given is None:
        return None
    if not os.path.isabs(given):
        raise BadOption(
            f"the option {UPLOAD_SPOOL} must be an absolute path of a folder on the machines of the tasks, "
            f"such as /var/spool/sluicegate: {given!r}"
        )
    return os.path.normpath(given)


def _spool_bytes(options: Mapping[str, str]) -> int:
    text = options.get(UPLOAD_BYTES)
    if text is None:
        return _DEFAULT_BYTES
    try:
        size = _SIZE.validate_python(text)
    except ValidationError:
        size = ByteSize(0)
    if size < 1:
        raise BadOption(f"the option {UPLOAD_BYTES} must be a size above 0 such as 16GiB: {text!r}")
    return size


def _before_publish(options: Mapping[str, str]) -> str | None:
    function = options.get(BEFORE_PUBLISH)
    if function is not None:
        resolve_function(function)
    return function


# --- the options of a sink ----------------------------------------------------------------------------

NAME: Final = "sluicegate"
"""Name of the data source, for `format`."""
TABLE_PREFIX: Final = "table."
"""Prefix of options for the lake adapter, which receives them without it."""
TABLES_PREFIX: Final = "tables."
"""Prefix of options that name further tables of the stream: each has the name of one in the catalog."""
TABLE_NAME: Final = "table.name"
"""Option with the name of the one further table that a sink writes."""

_KNOWN: Final = (
    "stream",
    "region",
    "table",
    "path",
    TABLE_NAME,
    "format",
    "topic.prefix",
    "event.time.column",
    "evolve",
    KIND_OPTION,
    *FILE_NAMES,
    *BACKPRESSURE_OPTIONS,
    *UPLOAD_OPTIONS,
    "assignment",
    "assignment.after",
    "regions",
    "bounded",
    "registration.timeout",
    "publish.timeout",
    "message.max.bytes",
    "checkpointlocation",
    "queryname",
)
_OF_TABLES: Final = ("table", "path", "format", "event.time.column", "evolve", KIND_OPTION, *FILE_NAMES)
_NAME: Final = re.compile(NAME_PATTERN)
_SMALLEST_MESSAGE: Final = 16_384
_DEFAULT_MESSAGE: Final = 1_000_000  # below Kafka's default limit of 1,048,588
_DEFAULT_TIMEOUT: Final = 60.0  # seconds
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")


@dataclass(frozen=True, slots=True)
class Target:
    """Table that an attempt writes to."""

    adapter: Adapter
    table: TableRef
    """The stream's own table."""
    event_time_column: str | None
    message_max_bytes: int
    evolve: Evolve = "never"
    """`add-columns`: the first rows of an attempt may bring nullable columns that the table lacks."""
    files: FileOptions | None = None
    wrap: "Wrap | None" = None
    """Function that returns the storage of the data files, in place of that of the table."""
    with_facts: bool = False
    """True: the events get facts of their files, and need room for them."""
    further: tuple[str, str] | None = None
    """Name and identifier of the further table that the attempt writes to; None: it is the stream's own."""
    upserts: Upserts | None = None
    """Options of rows for a table with keys; None: there are none."""

    def found_table(self) -> TableRef:
        """Return the table to write to. A further one is looked for in the catalog.

        Raises TableRefused or LakeUnavailable.
        """
        if self.further is None:
            return self.table
        name, identifier = self.further
        try:
            return _finding(self.adapter).further(self.table, identifier)
        except TableRefused as error:
            raise TableRefused(f"the option {TABLES_PREFIX}{name} cannot be used: {error}") from error


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
    kind_column: str | None = None
    """Column of the rows with their kinds, for a table with keys."""
    files: FileOptions | None = None
    """Options of the data files; None: the table and the defaults decide."""
    uploads: Uploads | None = None
    """Options of asynchronous uploads; None: each task uploads its own files."""
    work: Work | None = None
    """The user's work on the files of a task that uploads them itself."""
    tables: tuple[tuple[str, str], ...] = ()
    """Names of the further tables that the sink may write, with their identifiers in the catalog."""
    only: str = ""
    """The only one of them, which gets all rows; empty: rows that name no table go to the stream's own."""

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
            kind_column=options.get(KIND_OPTION) or None,
            backpressure=Backpressure.parse(options),
            files=_files(options),
            uploads=Uploads.parse(options),
            work=Work.parse(options),
            tables=tuple(_tables(options).items()),
            only=options.get(TABLE_NAME, ""),
        )

    def table_ref(self) -> TableRef:
        """Return the table as its adapter reads it. Raises BadOption."""
        return _table_ref(self.format, self.table, self.table_options)

    def attempt(self, incarnation: str, checkpoint: int, writer: str, table: str | None = None) -> Attempt:
        """Begin an attempt of a writer at a table; None: the one that the options name.

        The name of the writer contains that of a further table: events of one writer are of one attempt, and
        each table has attempts of its own. Raises BadOption.
        """
        name = self.only if table is None else table
        self.require_table(name)
        own = require_name("writer", writer)
        if name:
            own = require_name("writer", f"{name}.{own}")
        return Attempt(incarnation, checkpoint, own, table=name)

    def require_table(self, name: str) -> None:
        """Raise BadOption unless this names a table that the sink may write; empty: the stream's own."""
        if name and name not in dict(self.tables):
            known = ", ".join(each for each, _ in self.tables) or "none"
            raise BadOption(
                f"the options of this writer name no table {name!r} of the stream {self.region.stream}; "
                f"known: {known}. Rows of the stream's own table need no name. Correct the name, or add the "
                f"option {TABLES_PREFIX}{name}: the name of the table in the catalog, as in the settings of "
                "the coordinators"
            )

    def target(self, table: str = "", numbers: Numbers | None = None) -> Target:
        """Return what an attempt at a table needs to know. Raises BadOption.

        `numbers` are the sequence numbers of its rows, for a table with keys.
        """
        self.require_table(table)
        # The options name columns of one table.
        has_columns, files = table == self.only, self.files
        return Target(
            adapter=_adapter(self.format),
            table=self.table_ref(),
            event_time_column=self.event_time_column if has_columns else None,
            message_max_bytes=self.message_max_bytes,
            evolve=self.evolve,
            files=files.without_columns() if files is not None and not has_columns else files,
            further=(table, dict(self.tables)[table]) if table else None,
            upserts=Upserts(self.kind_column, numbers) if self.kind_column or numbers else None,
        )

    def targets(self) -> list[Target]:
        """Return the targets of all tables that the sink may write. Raises BadOption."""
        names = [name for name, _ in self.tables]
        return [self.target(name) for name in (names if self.only else ["", *names])]


def wrong_values(given: Mapping[str, str], *, located: bool = True) -> list[str]:
    """Return a sentence for each option that is missing, unknown or has an invalid value."""
    options, found = _lower(given), []
    for part in (*_PARTS, _location) if located else _PARTS:
        try:
            part(options)
        except BadOption as error:
            found.append(str(error))
    # Some parts need the same option.
    return list(dict.fromkeys(found))


def targets_of(given: Mapping[str, str]) -> list[Target]:
    """Return the targets of a sink, whatever the options are that say nothing of its tables.

    Raises BadOption.
    """
    own = {
        name: value
        for name, value in _lower(given).items()
        if name in _OF_TABLES or name.startswith((TABLE_PREFIX, TABLES_PREFIX))
    }
    others = {"stream": "s", "region": "r", f"{KAFKA_PREFIX}bootstrap.servers": "h:1"}
    return SinkOptions.parse({**own, **others}, located=False).targets()


def log_of(given: Mapping[str, str]) -> tuple[KafkaSettings, TopicNames]:
    """Return Kafka and the topics, whatever the other options are. Raises BadOption."""
    options = _lower(given)
    return KafkaSettings.from_options(options), TopicNames(_topic_prefix(options))


def location_of(given: Mapping[str, str]) -> str:
    """Return the checkpoint location, whatever the other options are. Raises BadOption."""
    return _location(_lower(given))


def _lower(given: Mapping[str, str]) -> dict[str, str]:
    """Return options by their names in lower case. The name of a table keeps its case."""
    return {
        TABLES_PREFIX + name[len(TABLES_PREFIX) :] if _is_table(name) else name.lower(): value
        for name, value in given.items()
    }


def _is_table(option: str) -> bool:
    return option.lower().startswith(TABLES_PREFIX)


def _location(options: Mapping[str, str]) -> str:
    return _required(options, "checkpointlocation", "set it on the query itself, not in the session")


def _message_max_bytes(options: Mapping[str, str]) -> int:
    return whole(options, "message.max.bytes", _DEFAULT_MESSAGE, _SMALLEST_MESSAGE)


def _named_table(options: Mapping[str, str]) -> TableRef:
    return _table_ref(_format(options), _table(options), _table_options(options))


@lru_cache(maxsize=64)
def _table_ref(table_format: str, text: str, options: tuple[tuple[str, str], ...]) -> TableRef:
    opened = _adapter(table_format)
    try:
        return opened.parse_table(text, dict(options))
    except TableRefused as error:
        named = [name for name, _ in options if re.search(rf"option {re.escape(name)}\b", str(error))]
        shown = f"{TABLE_PREFIX}{named[0]}" if named else "table"
        lacks = "" if named or "option" not in str(error) else f". Here, its name begins with {TABLE_PREFIX}"
        raise BadOption(f"the option {shown} cannot be used: {error}{lacks}") from error


def _adapter(table_format: str) -> Adapter:
    try:
        return adapter(table_format)
    except TableRefused as error:
        raise BadOption(f"the option format cannot be used: {error}") from error


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
    opened = _adapter(_format(options))
    try:
        evolving(opened)
    except TableRefused as error:
        raise BadOption(f"the option evolve cannot be add-columns: {error}") from error
    return "add-columns"


def _files(options: Mapping[str, str]) -> FileOptions | None:
    try:
        return FileOptions.parse(options)
    except BadFileOption as error:
        raise BadOption(str(error)) from error


def _table_options(options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    own = [
        (name, value)
        for name, value in options.items()
        if name.startswith(TABLE_PREFIX) and name != TABLE_NAME
    ]
    return tuple(sorted((name.removeprefix(TABLE_PREFIX), value) for name, value in own))


def _tables(options: Mapping[str, str]) -> dict[str, str]:
    """Return the further tables that the sink may write: by name, their identifiers. Raises BadOption."""
    found = {}
    for option in filter(_is_table, options):
        name = require_name(option, option.removeprefix(TABLES_PREFIX))
        found[name] = _required(options, option, "the name of the table in the catalog, NAMESPACE.TABLE")
    if len(found) > MOST_FURTHER_TABLES:
        raise BadOption(
            f"the options {TABLES_PREFIX}* name {len(found)} tables, and a stream has at most "
            f"{MOST_FURTHER_TABLES} beside its own. Use several streams"
        )
    if found:
        _finding(_adapter(_format(options)))
    only = options.get(TABLE_NAME)
    if only is None:
        return found
    # Spark gives the names of options in lower case.
    identifier = found.get(only, found.get(only.lower()))
    if identifier is None:
        raise BadOption(
            f"the option {TABLE_NAME} is {only!r}, and no option {TABLES_PREFIX}{only} gives the name of "
            f"that table in the catalog. Correct it, or add that option. Known: {', '.join(found) or 'none'}"
        )
    return {require_name(TABLE_NAME, only): identifier}


def _finding(opened: Adapter) -> OpensGroups:
    """Return an adapter as one that finds further tables. Raises BadOption if its format cannot."""
    if not isinstance(opened, OpensGroups):
        raise BadOption(
            f"the options {TABLES_PREFIX}* cannot be used: the format {opened.name} cannot change several "
            "tables in one step. Give each table a stream of its own"
        )
    return opened


def _require_known(options: Mapping[str, str]) -> None:
    """Refuse all unknown names in one error. Raises BadOption."""
    wrong = [
        name
        for name in options
        if name not in _KNOWN and not name.startswith((KAFKA_PREFIX, TABLE_PREFIX, TABLES_PREFIX))
    ]
    if not wrong:
        return
    shown = [f"{name}{_meant(name)}" for name in sorted(wrong)]
    noun = "options" if len(shown) > 1 else "option"
    raise BadOption(
        f"unknown {noun} {', '.join(shown)}; known are {', '.join(_KNOWN[:-2])}, checkpointLocation, "
        f"{KAFKA_PREFIX}* (the Kafka client), {TABLE_PREFIX}* (the table format) and {TABLES_PREFIX}* "
        "(further tables)"
    )


def _meant(name: str) -> str:
    close = difflib.get_close_matches(name, [*_KNOWN, f"{KAFKA_PREFIX}bootstrap.servers"], n=1)
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
        table=_named_table(options).location,
        tables=tuple(_tables(options)),
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
    _tables,
    KafkaSettings.from_options,
    _topic_prefix,
    lambda options: truth(options, "bounded"),
    lambda options: seconds(options, "publish.timeout", _DEFAULT_TIMEOUT),
    _registration_timeout,
    _message_max_bytes,
    _evolve,
    _files,
    Uploads.parse,
    Work.parse,
    Backpressure.parse,
)
"""Functions that each read one part of the options, and raise BadOption."""
