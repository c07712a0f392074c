"""The listener that marks partitions as done: outcomes and time go to the policy, marks become actions.

The policy needs the kinds of the table's partition fields, which only the table knows. An action reads them
once, and again when a commit names a field that is not known. Until then, commits wait in the state, in
order. So the marks are the same whenever the table was read.
"""

import hashlib
import importlib
import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from zoneinfo import ZoneInfo

import structlog

from sluicegate.events.models import CutReverted
from sluicegate.events.notifications import Notification, NotificationType, PartitionDone, SavepointTaken
from sluicegate.lakes.capabilities import (
    DescribesPartitions,
    FieldKind,
    PartitionField,
    PartitionLayout,
    capable,
)
from sluicegate.lakes.port import LakeUnavailable, TableRefused
from sluicegate.lakes.storage import Storage
from sluicegate.listeners.mark_done import policy
from sluicegate.listeners.mark_done.formats import Rule, period_of, tokens
from sluicegate.listeners.mark_done.options import ActionName, MarkDoneOptions, send_report
from sluicegate.listeners.mark_done.policy import Commit, Mark, Period, Progress, Resolve
from sluicegate.listeners.port import (
    Action,
    Done,
    Failed,
    Listener,
    ListenerRefused,
    Outcome,
    Refused,
    Result,
    Services,
    State,
    Step,
    Stream,
)

# Actions that several types of listeners have, and the ids of what they publish.

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Warn(Action):
    """Write a warning to the log: the text of the action, with more fields."""

    fields: tuple[tuple[str, object], ...] = ()


def warn(action: Warn, stream: str) -> Result:
    """Run a warning."""
    log.warning(action.text, stream=stream, **dict(action.fields))
    return Done()


def notification_id(stream: str, type: str, key: str) -> str:
    """Return the id of what an action publishes, in the form of the ids of other notifications."""
    return hashlib.sha256(f"{stream}/{type}/{key}".encode()).hexdigest()[:32]


# Facts of a table's partitions that marks need, and the settings that make no sense for them.

_TRANSFORMS: Final = ("year", "month", "day", "hour")
_OTHER_ACTIONS: Final = "Use the actions mark-event, http-report or custom"


def read_layout(stream: Stream) -> PartitionLayout:
    """Return the partitions of a table. It blocks. Raises LakeError."""
    maintenance = stream.adapter.open_maintenance(stream.table)
    return capable(maintenance, DescribesPartitions, "marking partitions").partition_layout()


def in_order(values: Mapping[str, str | None], names: Iterable[str]) -> dict[str, str | None]:
    """Return the values of a partition in the order of the table's fields; an outcome has another one."""
    return {name: values[name] for name in (*names, *values) if name in values}


def check_layout(options: MarkDoneOptions, layout: PartitionLayout) -> None:
    """Raise ListenerRefused if the settings make no sense for the partitions of the table."""
    if not layout.fields:
        raise ListenerRefused("the table has no partitions, so none can be marked. Remove the listener")
    if "success-file" in options.actions and layout.no_folder is not None:
        raise ListenerRefused(
            f"the action success-file needs a folder for each partition, and the table has none: "
            f"{layout.no_folder}. {_OTHER_ACTIONS}"
        )
    if options.timestamp_pattern is not None:
        _check_pattern(options, layout)
    else:
        _check_field(options, layout)


def _check_pattern(options: MarkDoneOptions, layout: PartitionLayout) -> None:
    names = {field.name: field for field in layout.fields}
    try:
        used = [name for _, name in tokens(options.timestamp_pattern or "", names) if name is not None]
    except ValueError as error:
        raise ListenerRefused(f"{error}. Correct timestamp_pattern") from None
    if not used:
        raise ListenerRefused(
            f"timestamp_pattern has no column, so all partitions have one time. Use one of "
            f"{', '.join('$' + name for name in names)}"
        )
    if options.time_field is not None:
        raise ListenerRefused("time_field and timestamp_pattern exclude each other. Remove one")
    _need_interval(options)


def _need_interval(options: MarkDoneOptions) -> None:
    if options.interval is None:
        raise ListenerRefused(
            "the length of a partition is not known: its time comes from column values. Set interval, "
            'such as interval = "1 d" or interval = "1 month"'
        )


def _check_field(options: MarkDoneOptions, layout: PartitionLayout) -> None:
    field = _chosen(options, layout)
    if field is None:
        _check_timeless(options, layout)
    elif field.kind in _TRANSFORMS:
        if options.interval is not None or options.timestamp_formatter is not None:
            raise ListenerRefused(
                f"the partition field {field.name} is a transform, which has its own length and format. "
                "Remove interval and timestamp_formatter"
            )
        if field.zoned and options.time_zone != "UTC":
            raise ListenerRefused(
                f"the partition field {field.name} is made from times with a zone, so its parts are those of "
                "UTC. Remove time_zone"
            )
    elif field.kind == "identity":
        _need_interval(options)


def _chosen(options: MarkDoneOptions, layout: PartitionLayout) -> PartitionField | None:
    """Return the field that has the time; None if the clock alone decides. Raises ListenerRefused."""
    names = ", ".join(field.name for field in layout.fields)
    if options.time_field is not None:
        found = [field for field in layout.fields if field.name == options.time_field]
        if not found:
            raise ListenerRefused(
                f"the table has no partition field {options.time_field}; it has {names}. Correct time_field"
            )
        if found[0].kind == "opaque":
            raise ListenerRefused(
                f"the values of the partition field {options.time_field} have no time, such as the number of "
                "a bucket. Name another one in time_field"
            )
        return found[0]
    if options.trigger == "processing-time" and options.interval is None and not _timed(layout):
        return None
    candidates = _timed(layout) or [field for field in layout.fields if field.kind == "identity"]
    if not candidates:
        raise ListenerRefused(
            f"the values of the partition fields {names} have no time. Partition the table by a time, or use "
            'trigger = "processing-time" without interval'
        )
    if len(candidates) > 1:
        raise ListenerRefused(
            f"the partition fields {', '.join(each.name for each in candidates)} could have the time. Set "
            "timestamp_pattern, or time_field if one of them has it"
        )
    return candidates[0]


def _check_timeless(options: MarkDoneOptions, layout: PartitionLayout) -> None:
    if options.timestamp_formatter is not None:
        raise ListenerRefused(
            "timestamp_formatter needs interval: the length of a partition. Set both, or none"
        )


def _timed(layout: PartitionLayout) -> list[PartitionField]:
    return [field for field in layout.fields if field.kind not in ("identity", "opaque")]


def resolver(options: MarkDoneOptions, fields: Mapping[str, PartitionField]) -> Resolve:
    """Return the way from the values of a partition to its period."""
    rule = Rule(
        options.timestamp_pattern,
        options.parse,
        options.length,
        ZoneInfo(options.time_zone),
        options.time_field,
    )
    plain = options.timestamp_pattern is None and options.time_field is None and options.interval is None
    timed = any(field.kind not in ("identity", "opaque") for field in fields.values())
    if options.trigger == "processing-time" and plain and not timed:
        return lambda _: None

    def resolve(values: Mapping[str, str | None]) -> Period:
        return period_of(values, fields, rule)

    return resolve


# Marks as others read them: the event of the feed, the JSON of a report, the argument of a function.


class DoneMark(PartitionDone):
    """A partition that is done, as a function of the action `custom` gets it."""

    key: str
    """The same for a repetition after a crash, and for no other mark of the stream."""
    stream: str


def done_mark(mark: Mark, stream: str, table: str) -> DoneMark:
    """Return a mark for a function."""
    return DoneMark(key=mark.key, stream=stream, **done_event(mark, table).model_dump())


def done_event(mark: Mark, table: str) -> PartitionDone:
    """Return the body of the event of a mark."""
    fields = mark._asdict()
    start, end = fields.pop("period") or (None, None)
    del fields["time"]
    return PartitionDone(table=table, start=start, end=end, **fields)


def report(mark: Mark, name: str, table: str) -> dict[str, object]:
    """Return the JSON of a report: Paimon's fields without `params`, and those of the event."""
    fields = done_event(mark, table).model_dump(exclude={"table"})
    return {"partition": mark.partition, "table": name, "path": table, **fields}


# Functions of users that get each mark.

Function = Callable[[DoneMark], Any]
InThread = Callable[[Callable[[], Any]], Awaitable[Any]]


def load_function(place: str) -> Function:
    """Return the function `package.module:name`. Raises ListenerRefused if there is none."""
    module, _, name = place.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:
        # The import runs code of the user.
        raise ListenerRefused(
            f"the function {place} of the action custom cannot be loaded: {type(error).__name__}: {error}. "
            "Install its package beside the service, or correct custom"
        ) from error
    if not callable(found):
        raise ListenerRefused(f"{place} of the action custom is no function. Name one that takes a mark")
    function: Function = found
    return function


async def call(function: Function, mark: DoneMark, in_thread: InThread) -> None:
    """Call a function with a mark: a coroutine function here, another one in a thread. Raises its errors."""
    if inspect.iscoroutinefunction(function):
        await function(mark)
        return
    result = await in_thread(lambda: function(mark))
    if inspect.isawaitable(result):
        await result


# The file `_SUCCESS` in the folder of a partition, with the JSON that Paimon writes and reads.

NAME: Final = "_SUCCESS"


def put_success_file(storage: Storage, folder: str, mark: Mark) -> None:
    """Put the file of a mark, atomically and durably; a file of this mark, or of a later one, stays.

    It keeps the time of the first mark. It blocks. Raises LakeUnavailable.
    """
    name = f"{folder}/{NAME}"
    if storage.leads_out(name):
        raise LakeUnavailable(f"{name} of {storage.uri} leads out of the table by a link. Remove the link")
    before = _read(storage, name)
    if _number(before.get("decision")) >= mark.decision:
        return
    created = _number(before.get("creationTime")) or mark.time
    storage.replace(name, _content(mark, created))


def _content(mark: Mark, created: int) -> bytes:
    fields = {
        "creationTime": created,
        "modificationTime": mark.time,
        "decision": mark.decision,
        "snapshot": mark.snapshot,
        "watermark": mark.watermark,
    }
    return json.dumps(fields).encode()


def _read(storage: Storage, name: str) -> dict[str, Any]:
    """Return the fields of the file; none if there is no file, or one of another product."""
    raw = storage.read(name)
    try:
        found = json.loads(raw) if raw else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


class MarkDoneState(State):
    """State of the marks of one stream."""

    progress: Progress = Progress()
    fields: dict[str, tuple[FieldKind, bool]] | None = None
    """By name, the kinds of the table's partition fields, and True for a time with a zone; None: not read."""
    waiting: tuple[Commit, ...] = ()
    """Commits that wait until the table was read."""


@dataclass(frozen=True)
class ReadLayout(Action):
    """Read the partition fields of the table."""


@dataclass(frozen=True)
class Act(Action):
    """One action of a mark."""

    name: ActionName = "mark-event"
    mark: Mark | None = None


class MarkDoneListener(Listener[MarkDoneState]):
    """The listener of one stream."""

    def __init__(self, options: MarkDoneOptions, stream: Stream, services: Services) -> None:
        """Make a listener. Raises ListenerRefused."""
        self._options = options
        self._stream = stream
        self._services = services
        self._terms = options.terms
        self._function = load_function(options.custom) if options.custom is not None else None
        self._layout: PartitionLayout | None = None

    def initial(self) -> MarkDoneState:
        return MarkDoneState()

    def load(self, state: Mapping[str, Any]) -> MarkDoneState:
        return MarkDoneState.model_validate(state)

    def apply(self, outcome: Outcome, state: MarkDoneState) -> Step[MarkDoneState]:
        seen = _facts(outcome)
        if seen is not None:
            state = state.model_copy(update={"waiting": (*state.waiting, seen)})
        return self._fold(state)

    def due(self, now: int, state: MarkDoneState) -> Step[MarkDoneState]:
        folded = self._fold(state)
        if folded.state.waiting:
            return folded
        elapsed = policy.elapse(folded.state.progress, now, self._terms)
        actions = (*folded.actions, *self._actions(elapsed.marks))
        return self._step(folded.state.model_copy(update={"progress": elapsed.progress}), actions)

    async def run(self, action: Action) -> Result:
        match action:
            case ReadLayout():
                return await self._read()
            case Warn():
                return warn(action, self._stream.name)
            case Act(mark=Mark() as mark):
                return await self._act(action, mark)
        return Refused(f"the action {action.key} is of another listener. Upgrade the service")

    # --- the fold ---------------------------------------------------------------------------------

    def _fold(self, state: MarkDoneState) -> Step[MarkDoneState]:
        """Fold the commits that wait, up to one that needs the table to be read."""
        if self._layout is not None:
            fields = {field.name: (field.kind, field.zoned) for field in self._layout.fields}
            state = state.model_copy(update={"fields": fields})
        progress, waiting, actions = state.progress, list(state.waiting), list[Action]()
        while waiting and not self._must_read(waiting[0], state):
            decided = self._decide(progress, waiting.pop(0), state)
            actions += self._warnings(progress, decided.progress)
            actions += self._actions(decided.marks)
            progress = decided.progress
        if waiting:
            key = f"layout/{waiting[0].decision}"
            actions.append(ReadLayout(key, "read the partition fields of the table"))
        changed = state.model_copy(update={"progress": progress, "waiting": tuple(waiting)})
        return self._step(changed, tuple(actions))

    def _must_read(self, seen: Commit, state: MarkDoneState) -> bool:
        if state.fields is None:
            return True
        names = {name for values in seen.partitions or () for name in values}
        # What was read in this process lists all fields that the table ever had.
        return self._layout is None and not names <= state.fields.keys()

    def _decide(self, progress: Progress, seen: Commit, state: MarkDoneState) -> policy.Decided:
        if seen.drained:
            return policy.drain(progress, seen.time, self._terms)
        known = state.fields or {}
        fields = {name: PartitionField(name, kind, zoned) for name, (kind, zoned) in known.items()}
        if seen.partitions is not None:
            ordered = tuple(in_order(values, known) for values in seen.partitions)
            seen = seen.model_copy(update={"partitions": ordered})
        return policy.commit(progress, seen, resolver(self._options, fields), self._terms)

    def _step(self, state: MarkDoneState, actions: tuple[Action, ...]) -> Step[MarkDoneState]:
        return Step(state, actions, policy.wake(state.progress, self._terms))

    def _actions(self, marks: tuple[Mark, ...]) -> list[Action]:
        return [
            Act(f"{name}/{mark.key}", f"mark {mark.partition} done: {name}", name, mark)
            for mark in marks
            for name in self._options.actions
        ]

    def _warnings(self, before: Progress, after: Progress) -> list[Action]:
        found: list[Action] = []
        if after.undated.count > before.undated.count:
            fields = (("count", after.undated.count), ("examples", after.undated.examples))
            found.append(
                Warn(f"undated/{after.decision}", "partitions without a time are never marked", fields)
            )
        if after.unknown != before.unknown:
            found.append(
                Warn(
                    f"unknown/{after.decision}",
                    "the partitions of a commit are unknown, so their marks may be missing",
                    (("decisions", after.unknown),),
                )
            )
        return found

    # --- actions ----------------------------------------------------------------------------------

    async def _read(self) -> Result:
        try:
            layout = await self._services.in_thread(lambda: read_layout(self._stream))
            check_layout(self._options, layout)
        except LakeUnavailable as error:
            return Failed(f"the partition fields of the table cannot be read: {error}")
        except (TableRefused, ListenerRefused) as error:
            return Refused(str(error))
        self._layout = layout
        return Done()

    async def _act(self, action: Act, mark: Mark) -> Result:
        location = self._stream.table.location
        match action.name:
            case "success-file":
                return await self._put(mark)
            case "mark-event":
                key = notification_id(self._stream.name, "mark-done", action.key)
                body = done_event(mark, location)
                kind = NotificationType.PARTITION_DONE
                await self._services.publish(Notification(key, kind, self._stream.name, "", "", body))
                return Done()
            case "http-report":
                return await self._report(action, mark)
            case "custom" if self._function is not None:
                await call(
                    self._function, done_mark(mark, self._stream.name, location), self._services.in_thread
                )
                return Done()
        return Refused(f"the action {action.name} is not supported. Remove it from actions")

    async def _put(self, mark: Mark) -> Result:
        if self._layout is None:
            found = await self._read()
            if not isinstance(found, Done):
                return found
        layout = self._layout
        if layout is None:
            return Failed("the partition fields of the table are not known yet")
        try:
            await self._services.in_thread(
                lambda: put_success_file(layout.storage, layout.folder(mark.values), mark)
            )
        except LakeUnavailable as error:
            return Failed(str(error))
        return Done()

    async def _report(self, action: Act, mark: Mark) -> Result:
        table = self._stream.table
        key = notification_id(self._stream.name, "mark-done", action.key)
        fields = report(mark, table.name, table.location)
        return await send_report(self._services.http, self._options, key, fields)


def _facts(outcome: Outcome) -> Commit | None:
    """Return the facts of an outcome that marks depend on; None if it has none."""
    body = outcome.body
    if isinstance(body, CutReverted):
        return None
    snapshot = body.snapshot.id if body.snapshot is not None else None
    if isinstance(body, SavepointTaken):
        if not body.drained:
            return None
        return Commit(
            decision=body.decision,
            time=outcome.time,
            watermark=body.watermark,
            partial=False,
            snapshot=snapshot,
            partitions=(),
            drained=True,
        )
    summary = body.summary
    # A commit without files touches nothing, whatever its summary knows.
    touched = () if body.files == 0 else summary.touched if summary is not None else None
    return Commit(
        decision=body.decision,
        time=outcome.time,
        watermark=body.watermark,
        partial=bool(body.fallbacks),
        snapshot=snapshot,
        partitions=touched,
    )


class MarkDone:
    """The type `mark-done`."""

    options = MarkDoneOptions

    def check(self, options: MarkDoneOptions, stream: Stream) -> None:
        """Raise ListenerRefused if the function of the action custom cannot be loaded."""
        if options.custom is not None:
            load_function(options.custom)

    def check_table(self, options: MarkDoneOptions, stream: Stream) -> None:
        """Raise ListenerRefused if the settings make no sense for the partitions of the table."""
        check_layout(options, read_layout(stream))

    def open(self, options: MarkDoneOptions, stream: Stream, services: Services) -> MarkDoneListener:
        """Return a listener. Raises ListenerRefused."""
        self.check(options, stream)
        return MarkDoneListener(options, stream, services)


TYPE = MarkDone()
