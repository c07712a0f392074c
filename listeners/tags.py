"""The listener that makes tags: of the cut that has passed a period, and of each savepoint."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from itertools import islice
from typing import Annotated, Any, Final, Literal, NamedTuple, Self
from zoneinfo import ZoneInfo

import structlog
from pydantic import AfterValidator, model_validator

from sluicegate.events.models import CutReverted, SnapshotRef
from sluicegate.events.notifications import Committed, SavepointTaken
from sluicegate.lakes.capabilities import (
    MakesTags,
    SnapshotExpired,
    Tag,
    TagAnswer,
    TagMade,
    TagTaken,
    capable,
)
from sluicegate.lakes.port import LakeUnavailable, TableRefused
from sluicegate.listeners.intervals import DAY, HOUR, MONTH, Duration, Interval, Zone, bounds, milliseconds
from sluicegate.listeners.mark_done.formats import LETTERS, field_of, literal
from sluicegate.listeners.port import (
    Action,
    Done,
    Failed,
    Listener,
    ListenerRefused,
    Options,
    Outcome,
    Refused,
    Result,
    Services,
    State,
    Step,
    Stream,
)

# Periods by the calendar: those that a watermark has passed, and the names of their tags.

Every = Literal["hourly", "daily", "monthly"]
LENGTHS: Final[dict[Every, Interval]] = {"hourly": HOUR, "daily": DAY, "monthly": MONTH}
FORMATS: Final[dict[Every, str]] = {"hourly": "yyyy-MM-dd-HH", "daily": "yyyy-MM-dd", "monthly": "yyyy-MM"}
_NEEDED: Final[dict[Every, tuple[str, ...]]] = {
    "hourly": ("year", "month", "day", "hour"),
    "daily": ("year", "month", "day"),
    "monthly": ("year", "month"),
}
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9 ._-]{0,229}", re.ASCII)
_MOST_GAPS: Final = 1_000
"""Periods that are looked at for one commit. Earlier ones get no tag of their own."""


class Passed(NamedTuple):
    """A period that has ended."""

    label: datetime
    """Its start, as the clock of the zone shows it."""
    end: int
    """Milliseconds since the Unix epoch."""


def passed(time: int, every: Every, zone: tzinfo, after: int | None) -> Iterator[Passed]:
    """Yield the periods that ended before a time, and after the end `after`, the newest first.

    The time is in milliseconds since the Unix epoch. An hour that the clock shows twice is one period, and
    one that it skips is none. Nothing is yielded for a time outside of the years 1 to 9999.
    """
    try:
        wall = datetime.fromtimestamp(time / 1000, UTC).astimezone(zone).replace(tzinfo=None)
        label = _floor(wall, every)
        for _ in range(_MOST_GAPS):
            begin, end = bounds(label, LENGTHS[every], zone)
            if after is not None and end <= after:
                return
            if begin < end < time:
                yield Passed(label, end)
            label = _before(label, every)
    except (ValueError, OverflowError, OSError):
        return


def _floor(wall: datetime, every: Every) -> datetime:
    hour = wall.replace(minute=0, second=0, microsecond=0)
    if every == "hourly":
        return hour
    return hour.replace(hour=0) if every == "daily" else hour.replace(hour=0, day=1)


def _before(label: datetime, every: Every) -> datetime:
    if every == "hourly":
        return label - timedelta(hours=1)
    return _floor(label - timedelta(days=1), every)


def name_of(pattern: str, label: datetime) -> str:
    """Return the name of a period's tag. Raises ValueError for letters without a meaning."""
    found: list[str] = []
    for part in LETTERS.finditer(pattern):
        letters: str | None = part["letters"]
        if letters is None:
            found.append(literal(part))
        else:
            value: int = getattr(label, field_of(letters, pattern)[0])
            found.append(f"{value:0{len(letters)}d}")
    return "".join(found)


def check_pattern(pattern: str, every: Every) -> None:
    """Check that periods have names of their own. Raises ValueError with the way out."""
    fields = {field_of(part["letters"], pattern)[0] for part in LETTERS.finditer(pattern) if part["letters"]}
    missing = [name for name in _NEEDED[every] if name not in fields]
    if missing:
        raise ValueError(
            f"the name {pattern!r} lacks the {missing[0]}, so tags of several periods would have one name. "
            f"Use the letters of {FORMATS[every]}"
        )
    check_name(name_of(pattern, datetime(2013, 1, 31, 23)))


def check_name(name: str) -> None:
    """Check that every format can have a tag of this name. Raises ValueError with the way out."""
    if not _NAME.fullmatch(name) or name.isdigit():
        raise ValueError(
            f"{name!r} is no name of a tag. Use letters of ASCII, digits, spaces and ._- only, begin with a "
            "letter, a digit or _, and do not use digits alone: readers would take them for a snapshot"
        )


# Settings of the listener that makes tags.


def _savepoint_name(text: str) -> str:
    if "{name}" not in text and "{decision}" not in text:
        raise ValueError("must contain {name} or {decision}, so that savepoints have tags of their own")
    rest = re.sub(r"\{(name|decision)\}", "x", text)
    if "{" in rest or "}" in rest:
        raise ValueError("has only the placeholders {name} and {decision}")
    check_name(rest)
    return text


class TagsOptions(Options):
    """Settings of one listener of the type `tags`."""

    period: Every | None = None
    """Period of the tags: `hourly`, `daily` or `monthly`; none: only savepoints have tags."""
    name: str | None = None
    """Format of the names, with the start of the period, such as `'day-'yyyy-MM-dd`. None: `yyyy-MM-dd-HH`,
    `yyyy-MM-dd` or `yyyy-MM`."""
    delay: Duration = "0 s"
    """The watermark of a cut passes the end of the period by this time before it has a tag."""
    time_zone: Zone = "UTC"
    """Time zone of the periods."""
    fill_gaps: bool = False
    """Make a tag of each period if a commit passes several; otherwise only that of the newest."""
    savepoints: bool = False
    """Make a tag of each savepoint and each complete drain."""
    savepoint_name: Annotated[str, AfterValidator(_savepoint_name)] = "savepoint-{name}"
    """Name of the tag of a savepoint, with `{name}` and `{decision}`. If it is that of another snapshot, and
    has no `{decision}`, the decision is added."""
    retained: Duration | None = None
    """Time after which the upkeep of the table's format may delete a tag; none: it stays."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.period is None and not self.savepoints:
            raise ValueError('no tag would ever be made. Set period, such as period = "daily", or savepoints')
        if self.period is None and (self.name is not None or self.fill_gaps or milliseconds(self.delay)):
            raise ValueError(
                "name, delay and fill_gaps belong to tags of periods. Set period, or remove them"
            )
        if self.retained is not None and milliseconds(self.retained) == 0:
            raise ValueError(
                'retained must be longer than nothing, such as "30 d". Remove it to keep all tags'
            )
        if self.period is not None:
            check_pattern(self.pattern, self.period)
        return self

    @property
    def pattern(self) -> str:
        """Return the format of the names of periods."""
        return self.name if self.name is not None else FORMATS[self.period or "daily"]


# The listener that makes tags: of the cut that has passed a period, and of savepoints.
#
# A tag is made once and never moved or deleted. A repetition after a crash finds it with the same snapshot.

log = structlog.get_logger(__name__)


NO_SNAPSHOT: Final = SnapshotRef(0, "")


class TagsState(State):
    """State of the tags of one stream."""

    through: int | None = None
    """End of the newest period that has a tag, in milliseconds since the Unix epoch."""


@dataclass(frozen=True)
class MakeTag(Action):
    """Make one tag."""

    name: str = ""
    snapshot: SnapshotRef = NO_SNAPSHOT
    decision: int = 0
    other: str = ""
    """Name to take if that one belongs to another snapshot; empty: none."""
    table: str = ""
    """Further table of the stream that gets it; empty: the table that the listener belongs to."""


class TagsListener(Listener[TagsState]):
    """The listener of one stream."""

    def __init__(self, options: TagsOptions, stream: Stream, services: Services) -> None:
        self._options, self._stream, self._services = options, stream, services
        self._zone = ZoneInfo(options.time_zone)
        self._delay = milliseconds(options.delay)
        self._retained = milliseconds(options.retained) if options.retained is not None else None
        self._opened: dict[str, MakesTags] = {}
        """By name, the tables that have got tags."""

    def initial(self) -> TagsState:
        return TagsState()

    def load(self, state: Mapping[str, Any]) -> TagsState:
        return TagsState.model_validate(state)

    def apply(self, outcome: Outcome, state: TagsState) -> Step[TagsState]:
        body = outcome.body
        if isinstance(body, CutReverted) or body.snapshot is None:
            return Step(state)
        if isinstance(body, SavepointTaken):
            return Step(state, self._of_savepoint(body))
        if body.watermark is None or self._options.period is None:
            return Step(state)
        found = list(self._passed(body.watermark - self._delay, state.through))
        if not found:
            return Step(state)
        names = [name_of(self._options.pattern, each.label) for each in reversed(found)]
        actions = tuple(action for name in names for action in self._actions(name, body))
        return Step(TagsState(through=found[0].end), actions)

    def _passed(self, time: int, after: int | None) -> "islice[Passed]":
        """Return the periods that have ended and have no tag, the newest first."""
        found = passed(time, self._options.period or "daily", self._zone, after)
        # Without a former tag there is no gap.
        return islice(found, None if self._options.fill_gaps and after is not None else 1)

    def _of_savepoint(self, body: SavepointTaken) -> tuple[Action, ...]:
        if not self._options.savepoints:
            return ()
        pattern = self._options.savepoint_name
        name = pattern.replace("{decision}", str(body.decision)).replace("{name}", body.name)
        # The name of an order may be used again: its next savepoint is another one.
        other = "" if "{decision}" in pattern else f"{name}-{body.decision}"
        return self._actions(name, body, other)

    def _actions(self, name: str, body: Committed | SavepointTaken, other: str = "") -> tuple[Action, ...]:
        """Return the tags of one name: of the listener's table, and of each further table of the vector.

        A table that no commit has touched gets none.
        """
        key, decision = f"tag/{name}@{body.decision}", body.decision
        heads = {"": body.snapshot} | {
            table: each.snapshot for table, each in sorted(body.tables.items()) if each.decision
        }
        return tuple(
            MakeTag(
                key=f"{key}/{table}" if table else key,
                text=f"make the tag {name}" + (f" of the table {table}" if table else ""),
                name=name,
                snapshot=snapshot or NO_SNAPSHOT,
                decision=decision,
                other=other,
                table=table,
            )
            for table, snapshot in heads.items()
        )

    async def run(self, action: Action) -> Result:
        if not isinstance(action, MakeTag):
            return Refused(f"the action {action.key} is of another listener. Upgrade the service")
        if action.table and (action.table not in self._stream.tables or action.snapshot == NO_SNAPSHOT):
            log.warning(
                "a table gets no tag: it is not in the settings any more, or its snapshot is unknown",
                stream=self._stream.name,
                table=action.table,
                tag=action.name,
                decision=action.decision,
            )
            return Done()
        try:
            answer = await self._tag(action)
            if isinstance(answer, TagTaken) and action.other:
                log.warning(
                    "the name of the savepoint's tag is in use, so it gets another one",
                    stream=self._stream.name,
                    tag=action.other,
                    used=action.name,
                    holder=answer.holder,
                )
                action = replace(action, name=action.other)
                answer = await self._tag(action)
        except LakeUnavailable as error:
            # Perhaps it was made. A repetition finds it then.
            return Failed(str(error))
        except (TableRefused, ValueError) as error:
            return Refused(str(error))
        return self._judged(answer, action)

    async def _tag(self, action: MakeTag) -> TagAnswer:
        """Make the tag of an action. Raises LakeUnavailable, TableRefused, ValueError."""
        check_name(action.name)
        tag = Tag(action.name, action.snapshot, action.decision, self._retained)
        answer: TagAnswer = await self._services.in_thread(partial(self._make, action.table, tag))
        return answer

    def _make(self, table: str, tag: Tag) -> TagAnswer:
        if table not in self._opened:
            self._opened[table] = tags_of(self._stream, table)
        return self._opened[table].make_tag(tag)

    def _judged(self, answer: TagAnswer, action: MakeTag) -> Result:
        snapshot, skip = action.snapshot.id, f"To go on without it, set skip_through = {action.decision}."
        of = f" of the table {action.table}" if action.table else ""
        if isinstance(answer, TagTaken):
            return Refused(
                f"The tag {action.name} of snapshot {snapshot}{of} was not made: the name is that of "
                f"{answer.holder}. Delete or rename that one, or set another name for new tags. {skip}"
            )
        if isinstance(answer, SnapshotExpired):
            after = "while its tag was made, so that tag may have lost files" if answer.tag_is_there else ""
            return Refused(
                f"Snapshot {snapshot} of the tag {action.name}{of} has expired "
                f"{after or 'before its tag was made'}. Keep snapshots of the table longer. "
                f"{skip}"
            )
        if isinstance(answer, TagMade):
            log.info(
                "tag made",
                stream=self._stream.name,
                table=action.table or None,
                tag=action.name,
                snapshot=snapshot,
            )
        return Done()


def tags_of(stream: Stream, table: str = "") -> MakesTags:
    """Return the maintenance of a table. It blocks. Raises TableRefused if it makes no tags.

    `table`: name of a further table of the stream; empty: the one that the listener belongs to.
    """
    opened = stream.adapter.open_maintenance(stream.tables[table] if table else stream.table)
    return capable(opened, MakesTags, "making tags")


class Tags:
    """The type `tags`."""

    options = TagsOptions

    def check(self, options: TagsOptions, stream: Stream) -> None:
        """Raise ListenerRefused if the format of the stream has no tags."""
        if stream.format == "delta":
            raise ListenerRefused(
                "a Delta table has no tags: its log has versions, and nothing keeps one of them from VACUUM. "
                "Remove the listener. To keep old versions, set delta.logRetentionDuration and "
                "delta.deletedFileRetentionDuration of the table"
            )

    def open(self, options: TagsOptions, stream: Stream, services: Services) -> TagsListener:
        """Return a listener. Raises ListenerRefused."""
        self.check(options, stream)
        return TagsListener(options, stream, services)


TYPE = Tags()
