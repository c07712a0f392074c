"""Reading of events: CloudEvents 1.0 in Kafka's binary content mode.

Nothing here raises because of a message. One that cannot be used gives a `Flaw`, which is data. `ce_time` is
for people who look at events: no reader decides anything by it.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, Generic, NamedTuple, TypeVar

from pydantic import ValidationError
from pydantic_core import from_json, to_json

from sluicegate.events.envelope import (
    BODIES,
    CHECKPOINT_COMPLETED,
    CONTENT_TYPE,
    FILES_WRITTEN,
    MAJOR_VERSION,
    MAX_ID_LENGTH,
    NUMBER_PATTERN,
    PER_CHECKPOINT,
    PER_REGION,
    PER_WRITER,
    PROBE,
    SOURCE,
    SOURCE_PATTERN,
    SPEC_VERSION,
    UNCOUNTED,
    Envelope,
    EventType,
    LogRecord,
    RawHeader,
    wire_type,
    with_counts,
)
from sluicegate.events.models import (
    INCARNATION_PATTERN,
    MOST_FILES,
    NAME_PATTERN,
    Body,
    CheckpointCompleted,
    FilesWritten,
    Position,
    Predecessor,
    default_source_digest,
)
from sluicegate.events.problems import Cause, CauseCode, Code, Problem, malformed

_Attributes = Mapping[str, bytes | None]
_Reader = tuple[str, Callable[[bytes | None], str | int]]
"""Name of an attribute, and the function that reads it; it raises ValueError."""
_Value = TypeVar("_Value")
_Kind = TypeVar("_Kind")


class Flaw(NamedTuple):
    """A message that cannot be used."""

    problem: Problem
    stream: str | None
    """The stream that the message names, if that can be read."""

    @property
    def stalls(self) -> bool:
        """True if only another release can read it, and its stream waits; else it is a dead letter."""
        return self.problem.code is Code.RECORD_UNREADABLE


class Addressed(NamedTuple, Generic[_Kind]):
    """Attributes of a message that may concern a whole stream."""

    kind: _Kind
    id: str
    stream: str
    region: str
    """Empty if it concerns the whole stream."""
    incarnation: str


class Reading(NamedTuple):
    """A message of the log: its record, or its flaw, or both if only the body is malformed."""

    record: LogRecord | None
    flaw: Flaw | None


_SHOWN: Final = 100
"""Bytes of a value, or characters of a path, that a flaw shows; a dead letter has a limit."""
_LISTED: Final = 5
"""Attributes that a flaw names at most."""
_VERSIONED: Final = re.compile(rb"(sluicegate\.[a-z_.]+)\.v([1-9][0-9]{0,8})")
_PROBE: Final = re.compile(re.escape(PROBE) + rb"(\.v[1-9][0-9]{0,8})?")
_NAME: Final = re.compile(NAME_PATTERN.strip("^$"))
_INCARNATION: Final = re.compile(INCARNATION_PATTERN.strip("^$"))
_NUMBER: Final = re.compile(NUMBER_PATTERN.strip("^$").encode())
_SOURCE: Final = re.compile(SOURCE_PATTERN.strip("^$").encode())
_UTF_8: Final = (b"charset=utf-8", b'charset="utf-8"')
_MOST_DIGITS: Final = 40
"""Digits of a number that is looked at as a whole one. All numbers of events have fewer."""
_CACHED: Final = 16_384
_new: Final = tuple.__new__  # makes a named tuple of all its values, in half the time of `_make`


def _is_of_other_version(raw: bytes, kinds: Collection[bytes]) -> bool:
    """True if a `ce_type` is one of these types in another major version."""
    match = _VERSIONED.fullmatch(raw)
    if match is None or int(match[2]) == MAJOR_VERSION:
        return False
    return b"%b.v%d" % (match[1], MAJOR_VERSION) in kinds


class _Known(dict[bytes | None, _Value]):
    """Values by their bytes: few different names and numbers recur in many events.

    It saves time, and memory for equal strings. A look-up takes half the time of `lru_cache`.
    """

    def __init__(self, parse: Callable[[bytes], _Value], absent: _Value | None = None) -> None:
        super().__init__()
        self._parse = parse
        self._absent = absent
        """Value of an attribute that may be absent; None: it is needed."""

    def __missing__(self, raw: bytes | None) -> _Value:
        value = self._absent if raw is None else self._parse(raw)
        if value is None:
            raise ValueError("the attribute is absent")
        if len(self) >= _CACHED:
            self.clear()
        self[raw] = value
        return value


def _parse_name(raw: bytes) -> str:
    """Return the name of a stream, a region or a writer. Raises ValueError."""
    text = raw.decode()
    if not _NAME.fullmatch(text):
        raise ValueError(f"{text!r} is no name")
    return text


def _parse_incarnation(raw: bytes) -> str:
    """Return the id of an incarnation. Raises ValueError."""
    text = raw.decode()
    if not _INCARNATION.fullmatch(text):
        raise ValueError(f"{text!r} is no id of an incarnation")
    return text


def _parse_number(raw: bytes) -> int:
    """Return a number of at most 18 digits. Raises ValueError."""
    if not _NUMBER.fullmatch(raw):
        raise ValueError(f"{raw!r} is no number of at most 18 digits")
    return int(raw)


def _parse_files(raw: bytes) -> int:
    """Return a number of files. Raises ValueError."""
    if (number := _parse_number(raw)) > MOST_FILES:
        raise ValueError(f"the number of files is {number}, and an event has at most {MOST_FILES}")
    return number


def _read_id(raw: bytes | None) -> str:
    """Return the id of an event or an attempt. Raises ValueError."""
    text = raw.decode() if raw is not None else ""
    if not 0 < len(text) <= MAX_ID_LENGTH:
        raise ValueError(f"an id has 1 to {MAX_ID_LENGTH} characters")
    return text


_read_name: Final = _Known(_parse_name).__getitem__
_read_incarnation: Final = _Known(_parse_incarnation).__getitem__
_read_number: Final = _Known(_parse_number).__getitem__
_read_file_count: Final = _Known(_parse_files, absent=UNCOUNTED).__getitem__
_read_count: Final = _Known(_parse_number, absent=0).__getitem__
_read_name_if_any: Final = _Known(_parse_name, absent="").__getitem__
_read_incarnation_if_any: Final = _Known(_parse_incarnation, absent="").__getitem__

_OF_ALL: Final[tuple[_Reader, ...]] = (("ce_id", _read_id), ("ce_stream", _read_name))
_OF_REGION: Final[tuple[_Reader, ...]] = (("ce_region", _read_name), ("ce_incarnation", _read_incarnation))
_OF_CHECKPOINT: Final[tuple[_Reader, ...]] = (("ce_checkpoint", _read_number),)
_OF_WRITER: Final[tuple[_Reader, ...]] = (
    ("ce_writer", _read_name),
    ("ce_attempt", _read_id),
    ("ce_files", _read_file_count),
    ("ce_rows", _read_count),
    ("ce_bytes", _read_count),
    ("ce_table", _read_name_if_any),
)
_ADDRESSED: Final[tuple[_Reader, ...]] = (
    *_OF_ALL,
    ("ce_region", _read_name_if_any),
    ("ce_incarnation", _read_incarnation_if_any),
)


class Shape(NamedTuple):
    """A type of event, and the groups of attributes that it has beside id and stream."""

    type: EventType
    region: bool
    checkpoint: bool
    writer: bool
    readers: tuple[_Reader, ...]
    """Readers of its attributes, in the order of the envelope."""
    absent: tuple[str | int, ...]
    """Values of the envelope's other fields, which are its last ones."""


def _shape(kind: EventType) -> Shape:
    groups = kind in PER_REGION, kind in PER_CHECKPOINT, kind in PER_WRITER
    # Each group includes the one before it.
    readers = _OF_ALL + _OF_REGION * groups[0] + _OF_CHECKPOINT * groups[1] + _OF_WRITER * groups[2]
    return Shape(kind, *groups, readers, Envelope("", kind, "")[1 + len(readers) :])


EVENT_SHAPES: Final = {wire_type(kind): _shape(kind) for kind in EventType}
_CARRYING: Final = _shape(FILES_WRITTEN)._replace(type=CHECKPOINT_COMPLETED)
"""A completion that carries files."""


def _is_source(raw: bytes | None) -> bool:
    """True if the value is a URI reference, so `ce_source` may have it."""
    return raw is not None and _SOURCE.fullmatch(raw) is not None


def _is_json(raw: bytes | None) -> bool:
    """True for the media type of bodies, with any parameters; a charset other than UTF-8 contradicts it."""
    kind, *parameters = (raw or b"").lower().split(b";")
    named = [each.strip(b" \t") for each in parameters]
    return kind.strip(b" \t") == CONTENT_TYPE and all(
        each in _UTF_8 for each in named if each.startswith(b"charset=")
    )


# --- messages -------------------------------------------------------------------------------------


def read_record(offset: int, time: int, headers: Sequence[RawHeader], value: bytes | None) -> Reading:
    """Read a record of the log as the core takes it.

    The files of an event are looked at only if its attributes do not state their number.
    `time` is its append time in milliseconds since the Unix epoch. A probe has neither a record nor a flaw.
    """
    envelope = read_attributes(headers)
    if isinstance(envelope, Flaw):
        if _is_probe(headers):
            return Reading(None, None)
        if envelope.problem.code is Code.RECORD_UNREADABLE:
            located = envelope.problem.model_copy(update={"number": offset})
            return Reading(None, envelope._replace(problem=located))
        return Reading(None, envelope)
    if envelope.files == UNCOUNTED:
        envelope = _counted(envelope, value)
    if envelope.type is FILES_WRITTEN:
        return _new(Reading, (_new(LogRecord, (offset, time, envelope, None, "", "")), None))
    body: Body | Problem
    if envelope.type is CHECKPOINT_COMPLETED:
        body = read_completion(envelope, value)
    else:
        body = read_body(envelope.type, value)
    if isinstance(body, Problem):
        record = LogRecord(offset, time, envelope, None, body.detail or str(body.code))
        return Reading(record, Flaw(body, envelope.stream))
    return Reading(LogRecord(offset, time, envelope, body), None)


def _is_probe(headers: Sequence[RawHeader]) -> bool:
    """True if a message only proves the right to write."""
    return _PROBE.fullmatch(dict(headers).get("ce_type") or b"") is not None


# --- bodies ---------------------------------------------------------------------------------------


def read_body(event_type: EventType, value: bytes | None) -> Body | Problem:
    """Read a body of the given type."""
    return parse_body(BODIES[event_type], value)


class _Unread(Body):
    """The files that a completion carries, before they are needed."""


class _Arrived(CheckpointCompleted):
    """A completion with files as it arrives. Most of a large one are its files, which nobody needs yet."""

    files: _Unread | None = None  # type: ignore[assignment]


class _Carrying(Body):
    """The part of a completion that its files are."""

    files: FilesWritten


def read_completion(envelope: Envelope, value: bytes | None) -> CheckpointCompleted | Problem:
    """Read a completion as the core takes it: without files, and with everything that it may leave out.

    One that carries files is the same as a `files.written` with its id, and a completion that names this id.
    So it names itself here, and whoever folds the log adds its files as those of a `files.written`.
    """
    carries = bool(envelope.writer)
    if (body := _read_apart(envelope, value or b"")) is None:
        found = parse_body(_Arrived if carries else CheckpointCompleted, value)
        if isinstance(found, Problem):
            return found
        body = found
        if carries != (body.files is not None):
            lacking = CauseCode.ATTEMPT_WITHOUT_FILES if carries else CauseCode.FILES_WITHOUT_ATTEMPT
            return Problem(code=Code.MALFORMED_BODY, names=("files",), cause=Cause(code=lacking))
    before = _position_of(body.predecessor, envelope.incarnation)
    if isinstance(before, Problem):
        return before
    if body.files is None and body.source_digest and before is body.predecessor:
        return body
    events = (envelope.id,) if carries else body.events
    digest = body.source_digest or default_source_digest(envelope.checkpoint, events, body.source_offsets)
    return CheckpointCompleted.model_construct(
        events=events,
        files=None,
        predecessor=before,
        source_digest=digest,
        watermark=body.watermark,
        listeners=body.listeners,
        source_offsets=body.source_offsets,
    )


# A completion with files is read apart: the members that the core needs, and the files that a check needs.
# A text of another spelling is read as a whole, which is the definition of both readings.

_HEADS: Final = (b'{"events":[],"files":{', b'{"files":{')
_NEXT: Final = b',"predecessor":'
_LAST: Final = b',"files":'


def _apart(raw: bytes) -> tuple[bytes, bytes] | None:
    """Return the texts of a completion without its files, and of its files; None: it has another spelling.

    Usual writers have the files first or last, and no spaces. The caller has to find that the second text is
    one object. Then the whole is JSON, too, and has both parts as its members.
    """
    first = raw.startswith(_HEADS)
    begin = raw.index(b"{", 1) if first else raw.find(_LAST) + len(_LAST)
    end = raw.rfind(_NEXT) if first else len(raw) - 1
    if not len(_LAST) <= begin < end:
        return None
    rest = b"{" + raw[end + 1 :] if first else raw[: begin - len(_LAST)] + raw[end:]
    if not _has_each_key_once(rest) or b'"files":' in rest or b'"events":' in rest:
        return None
    return rest, raw[begin:end]


def _read_apart(envelope: Envelope, raw: bytes) -> CheckpointCompleted | None:
    """Read a completion with files as one that names itself; None: read the whole text."""
    if not envelope.writer or (found := _apart(raw)) is None:
        return None
    rest, files = found
    try:
        _Unread.model_validate_json(files)
        itself = b'{"events":[%b],%b' % (to_json(envelope.id), rest[1:])
        return CheckpointCompleted.model_validate_json(itself, strict=True)
    except ValidationError:
        return None


def _position_of(before: Predecessor | None, incarnation: str) -> Predecessor | Problem | None:
    """Return a predecessor with its incarnation; a problem if it leaves too much out."""
    if before is None or isinstance(before, Position):
        return before
    if before.incarnation not in ("", incarnation):
        lacking = Cause(code=CauseCode.PREDECESSOR_WITHOUT_DIGEST, names=(before.incarnation,))
        return Problem(code=Code.MALFORMED_BODY, names=("predecessor.digest",), cause=lacking)
    # The number identifies it, so the digest may be left out.
    return Position.model_construct(
        incarnation=incarnation, checkpoint=before.checkpoint, digest=before.digest
    )


def _counted(envelope: Envelope, value: bytes | None) -> Envelope:
    """Return the attributes of an event with files that does not state their number, with the counts."""
    files = read_files(envelope, value)
    return envelope._replace(files=0) if isinstance(files, Problem) else with_counts(envelope, files)


def read_files(envelope: Envelope, value: bytes | None) -> FilesWritten | Problem:
    """Read the files of an event that has some; its offset is enough to fetch and read it again.

    It must have as many files as its attributes announce, and no path twice.
    """
    found: _Carrying | FilesWritten | Problem | None = None
    if envelope.type is not CHECKPOINT_COMPLETED:
        found = parse_body(FilesWritten, value)
    elif (apart := _apart(value or b"")) is not None:
        found = parse_body(FilesWritten, apart[1])
    if found is None or (isinstance(found, Problem) and envelope.type is CHECKPOINT_COMPLETED):
        found = parse_body(_Carrying, value)
    if isinstance(found, Problem):
        return found
    body = found.files if isinstance(found, _Carrying) else found
    if envelope.files not in (len(body.files), UNCOUNTED):
        miscounted = Cause(code=CauseCode.FILES_MISCOUNTED, number=len(body.files), other=envelope.files)
        return Problem(code=Code.MALFORMED_BODY, names=("files",), cause=miscounted)
    seen: set[str] = set()
    for index, file in enumerate(body.files):
        if file.path in seen:
            repeated = Cause(code=CauseCode.PATH_REPEATED, names=(file.path[:_SHOWN],))
            return Problem(code=Code.MALFORMED_BODY, names=(f"files.{index}.path",), cause=repeated)
        seen.add(file.path)
    return body


_Parsed = TypeVar("_Parsed", bound=Body)
_SPACES: Final = (b" ", b"\n", b"\t", b"\r")


def parse_body(model: type[_Parsed], value: bytes | None) -> _Parsed | Problem:
    """Read a body as the model of its type.

    JSON has several spellings of a whole number, such as `4.0`, and each is read exactly. A key that an
    object has twice is refused: two readers could take different values.
    """
    raw = value or b""
    try:
        # Strict, so that exactly what the published JSON Schema permits is accepted.
        found = model.model_validate_json(raw, strict=True)
    except ValidationError as error:
        respelled = _respelled(raw)
        if respelled is None:
            return malformed(Code.MALFORMED_BODY, error)
        try:
            found = model.model_validate_json(respelled, strict=True)
        except ValidationError as error:
            return malformed(Code.MALFORMED_BODY, error)
    if not (_has_as_many_keys(raw, found) if isinstance(found, FilesWritten) else _has_each_key_once(raw)):
        try:
            if model is _Arrived:
                # Whoever reads the files looks at their keys, as at those of a `files.written`.
                _check_members(json.loads(raw, object_pairs_hook=_Members), unread="files")
            else:
                json.loads(raw, object_pairs_hook=_check_keys)
        except _KeyRepeated as repeated:
            return repeated.problem
    return found


def _has_each_key_once(raw: bytes) -> bool:
    """Return True if no key of a text is there twice. False: a second reading has to show that.

    An object in memory has each key once, and so has the text that is made of it.
    """
    try:
        return to_json(from_json(raw)) == raw
    except ValueError:
        return False


def _has_as_many_keys(raw: bytes, found: FilesWritten) -> bool:
    """Return True if no key of a list of files is there twice. False: a second reading has to show that.

    A text without spaces has a quotation mark and a colon after each key, and each key that is there once is
    in the body. An unknown key, or a value with such signs, gives another number. The second reading takes as
    long as the first one.
    """
    if any(each in raw for each in _SPACES):
        return False
    files = sum(len(each.__pydantic_fields_set__) + len(each.partition) for each in found.files)
    facts = sum(1 + len(each) for each in found.facts.values())
    return raw.count(b'":') == len(found.__pydantic_fields_set__) + files + facts


class _KeyRepeated(Exception):
    """An object has a key twice."""

    def __init__(self, key: str) -> None:
        cause = Cause(code=CauseCode.KEY_REPEATED, names=(key[:_SHOWN],))
        self.problem = Problem(code=Code.MALFORMED_BODY, cause=cause)


class _Members(tuple[tuple[str, object], ...]):
    """Members of an object of JSON."""

    __slots__ = ()


def _check_members(value: object, unread: str = "") -> None:
    """Check the keys of all objects, except in the member `unread`."""
    if isinstance(value, _Members):
        _check_keys(value)
        for key, each in value:
            if key != unread:
                _check_members(each)
    elif isinstance(value, list):
        for each in value:
            _check_members(each)


def _check_keys(pairs: Sequence[tuple[str, object]]) -> None:
    if len({key for key, _ in pairs}) < len(pairs):
        counted = Counter(key for key, _ in pairs)
        raise _KeyRepeated(counted.most_common(1)[0][0])


def _respelled(raw: bytes) -> bytes | None:
    """Return a JSON text with each whole number as plain digits; None if it has no other spelling of one."""
    changed = False

    def spelled(text: str) -> int | float:
        nonlocal changed
        number = Decimal(text)
        if number.adjusted() > _MOST_DIGITS or number != number.to_integral_value():
            return float(text)
        changed = True
        return int(number)

    try:
        # A key that is there twice would be lost here, and is refused as it is in any other body.
        found = json.loads(raw.decode(), parse_float=spelled, object_pairs_hook=_unique)
        return json.dumps(found).encode() if changed else None
    except (ValueError, ArithmeticError, RecursionError):
        return None


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found


# --- attributes -----------------------------------------------------------------------------------


class _Unusable(Exception):
    """The first problem of a message."""

    def __init__(self, code: Code, *names: str, shown: bytes = b"", number: int | None = None) -> None:
        # A header may have any name, also a very long one.
        listed = tuple(_shown(name.encode(errors="replace")) for name in names[:_LISTED])
        self.problem = Problem(code=code, names=listed, number=number, detail=_shown(shown))


def _shown(raw: bytes) -> str:
    return raw[:_SHOWN].decode(errors="replace")


def read_attributes(headers: Sequence[RawHeader]) -> Envelope | Flaw:
    """Read the attributes of an event. Those that its type does not have are ignored.

    A header without a value is as good as absent.
    """
    attributes = dict(headers)
    try:
        shape = _kind(headers, attributes, EVENT_SHAPES)
        if shape.type is CHECKPOINT_COMPLETED and _has_attempt(attributes):
            shape = _CARRYING
        if shape.writer and (written := _read_written(attributes, shape.type)) is not None:
            return written
        event, *place = _read(attributes, shape.readers)
    except _Unusable as found:
        return _flaw(found.problem, headers)
    return Envelope._make((event, shape.type, *place, *shape.absent))


def _has_attempt(attributes: _Attributes) -> bool:
    """True if a completion has attributes of a writer, so it has to carry files."""
    return attributes.get("ce_writer") is not None or attributes.get("ce_attempt") is not None


def _read_written(attributes: _Attributes, kind: EventType) -> Envelope | None:
    """Return the attributes of an event with files as its readers do; None if one is absent or malformed.

    Most events have files. Without a loop over the readers, it takes half the time.
    """
    get = attributes.get
    try:
        event, attempt = _read_id(get("ce_id")), _read_id(get("ce_attempt"))
        stream, region = _read_name(get("ce_stream")), _read_name(get("ce_region"))
        life, writer = _read_incarnation(get("ce_incarnation")), _read_name(get("ce_writer"))
        number, files = _read_number(get("ce_checkpoint")), _read_file_count(get("ce_files"))
        rows, size = _read_count(get("ce_rows")), _read_count(get("ce_bytes"))
        table = _read_name_if_any(get("ce_table"))
    except ValueError:
        return None
    values = (event, kind, stream, region, life, number, writer, attempt, files, rows, size, table)
    return _new(Envelope, values)


def event_id(headers: Sequence[RawHeader]) -> str | None:
    """Return the id of an event of any type and major version; None if it has none."""
    try:
        return _read_id(dict(headers).get("ce_id"))
    except ValueError:
        return None


def other_envelope(headers: Sequence[RawHeader]) -> Envelope:
    """Return the attributes of a record of another major version, as far as this release can read them.

    Its type is known, and so is its stream. The others are empty if they have another form there.
    """
    get, match = dict(headers).get, _VERSIONED.fullmatch(dict(headers).get("ce_type") or b"")
    kind = EVENT_SHAPES[b"%b.v%d" % (match[1] if match else b"", MAJOR_VERSION)].type

    def text(name: str, read: Callable[[bytes | None], str]) -> str:
        try:
            return read(get(name))
        except ValueError:
            return ""

    region, incarnation = text("ce_region", _read_name), text("ce_incarnation", _read_incarnation)
    return Envelope(event_id(headers) or "", kind, _stream(headers) or "", region, incarnation)


def read_addressed(headers: Sequence[RawHeader], kinds: Mapping[bytes, _Kind]) -> "Addressed[_Kind] | Flaw":
    """Read the attributes that every message has, of one of these kinds, by the value of `ce_type`."""
    attributes = dict(headers)
    try:
        kind = _kind(headers, attributes, kinds)
        return Addressed(kind, *_read(attributes, _ADDRESSED))
    except _Unusable as found:
        return _flaw(found.problem, headers)


def _flaw(problem: Problem, headers: Sequence[RawHeader]) -> Flaw:
    """Return the flaw of a message. One that names no stream can stall none: its type is unknown."""
    stream = _stream(headers)
    if stream is None and problem.code is Code.RECORD_UNREADABLE:
        problem = problem.model_copy(update={"code": Code.UNKNOWN_TYPE, "names": ("ce_type",)})
    return Flaw(problem, stream)


def _read(attributes: _Attributes, readers: tuple[_Reader, ...]) -> list[Any]:
    """Return the values of attributes, up to the first one that is absent or malformed."""
    get, values, name = attributes.get, [], ""
    try:
        for name, read in readers:
            values.append(read(get(name)))
    except ValueError:
        raw = get(name)
        code = Code.MISSING_ATTRIBUTE if raw is None else Code.MALFORMED_ATTRIBUTE
        raise _Unusable(code, name, shown=raw or b"") from None
    return values


def _kind(headers: Sequence[RawHeader], attributes: _Attributes, kinds: Mapping[bytes, _Kind]) -> _Kind:
    """Check what every message has, and return what its type stands for."""
    get = attributes.get
    kind = kinds.get(get("ce_type") or b"")
    if (
        kind is not None
        and get("ce_specversion") == SPEC_VERSION
        and get("ce_source") == SOURCE
        and get("content-type") == CONTENT_TYPE
        and len(attributes) == len(headers)
    ):
        # Nearly every message: the thorough check would find nothing.
        return kind
    return _kind_checked(headers, attributes, kinds)


def _kind_checked(
    headers: Sequence[RawHeader], attributes: _Attributes, kinds: Mapping[bytes, _Kind]
) -> _Kind:
    """Return what a message's type stands for, or raise its first problem.

    A message of another major version may have other attributes, so the version is checked first.
    """
    doubled = _contradictions(headers) if len(attributes) < len(headers) else ()
    if "ce_type" in doubled:
        raise _Unusable(Code.CONTRADICTION, *doubled)
    raw = attributes.get("ce_type")
    if raw is None:
        raise _Unusable(Code.NO_EVENT, "ce_type")
    kind = kinds.get(raw)
    if kind is None and _is_of_other_version(raw, kinds):
        raise _Unusable(Code.RECORD_UNREADABLE, shown=raw)
    if doubled:
        raise _Unusable(Code.CONTRADICTION, *doubled)
    _check_context(attributes)
    if kind is None:
        raise _Unusable(Code.UNKNOWN_TYPE, "ce_type", shown=raw)
    return kind


def _check_context(attributes: _Attributes) -> None:
    """Check the attributes that have the same values in every message."""
    version, source = attributes.get("ce_specversion"), attributes.get("ce_source")
    if version != SPEC_VERSION:
        raise _Unusable(Code.SPEC_VERSION, "ce_specversion", shown=version or b"")
    if not _is_source(source):
        raise _Unusable(Code.SOURCE, "ce_source", shown=source or b"")
    content = attributes.get("content-type")
    if not _is_json(content):
        raise _Unusable(Code.CONTENT_TYPE, "content-type", shown=content or b"")


def _contradictions(headers: Sequence[RawHeader]) -> tuple[str, ...]:
    """Return the attributes with two values: two readers of one message must not read different ones."""
    seen: dict[str, bytes | None] = {}
    found: dict[str, None] = {}
    for name, value in headers:
        ours = name.startswith("ce_") or name == "content-type"
        if ours and seen.setdefault(name, value) != value:
            found[name] = None
    return tuple(found)


def _stream(headers: Sequence[RawHeader]) -> str | None:
    """Return the stream that a flawed message names; None if it names none, or two."""
    values = {value for name, value in headers if name == "ce_stream"}
    raw = values.pop() if len(values) == 1 else None
    try:
        return _read_name(raw) if raw is not None else None
    except ValueError:
        return None
