"""The listener that makes tags: of the cut that has passed a period, and of savepoints.

A tag is made once and never moved or deleted. A repetition after a crash finds it with the same snapshot.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Final
from zoneinfo import ZoneInfo

import structlog

from sluicegate.events.models import CutReverted, Head
from sluicegate.events.notifications import SavepointTaken
from sluicegate.lakes.port import LakeUnavailable, SnapshotRef, TableRefused
from sluicegate.lakes.registry import capable
from sluicegate.lakes.tags import MakesTags, SnapshotExpired, Tag, TagAnswer, TagMade, TagTaken
from sluicegate.listeners.durations import milliseconds
from sluicegate.listeners.port import (
    PORT_VERSION,
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
from sluicegate.listeners.tags.options import TagsOptions
from sluicegate.listeners.tags.periods import Passed, check_name, name_of, passed

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


class TagsListener(Listener[TagsState]):
    """The listener of one stream."""

    def __init__(self, options: TagsOptions, stream: Stream, services: Services) -> None:
        self._options, self._stream, self._services = options, stream, services
        self._zone = ZoneInfo(options.time_zone)
        self._delay = milliseconds(options.delay)
        self._retained = milliseconds(options.retained) if options.retained is not None else None
        self._maintenance: MakesTags | None = None

    def initial(self) -> TagsState:
        return TagsState()

    def load(self, state: Mapping[str, Any]) -> TagsState:
        return TagsState.model_validate(state)

    def apply(self, outcome: Outcome, state: TagsState) -> Step[TagsState]:
        body = outcome.body
        if isinstance(body, CutReverted) or body.snapshot is None:
            return Step(state)
        if isinstance(body, SavepointTaken):
            return Step(state, self._of_savepoint(body, body.snapshot))
        if body.watermark is None or self._options.period is None:
            return Step(state)
        found = list(self._passed(body.watermark - self._delay, state.through))
        if not found:
            return Step(state)
        names = [name_of(self._options.pattern, each.label) for each in reversed(found)]
        actions = tuple(self._action(name, body.snapshot, body.decision) for name in names)
        return Step(TagsState(through=found[0].end), actions)

    def _passed(self, time: int, after: int | None) -> "islice[Passed]":
        """Return the periods that have ended and have no tag, the newest first."""
        found = passed(time, self._options.period or "daily", self._zone, after)
        # Without a former tag there is no gap.
        return islice(found, None if self._options.fill_gaps and after is not None else 1)

    def _of_savepoint(self, body: SavepointTaken, snapshot: Head) -> tuple[Action, ...]:
        if not self._options.savepoints:
            return ()
        pattern = self._options.savepoint_name
        name = pattern.replace("{decision}", str(body.decision)).replace("{name}", body.name)
        # The name of an order may be used again: its next savepoint is another one.
        other = "" if "{decision}" in pattern else f"{name}-{body.decision}"
        return (self._action(name, snapshot, body.decision, other),)

    def _action(self, name: str, snapshot: Head, decision: int, other: str = "") -> MakeTag:
        ref = SnapshotRef(snapshot.snapshot, snapshot.identity)
        return MakeTag(f"tag/{name}@{decision}", f"make the tag {name}", name, ref, decision, other)

    def due(self, now: int, state: TagsState) -> Step[TagsState]:
        return Step(state)

    async def run(self, action: Action) -> Result:
        if not isinstance(action, MakeTag):
            return Refused(f"the action {action.key} is of another listener. Upgrade the service")
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
        answer: TagAnswer = await self._services.in_thread(partial(self._make, tag))
        return answer

    def _make(self, tag: Tag) -> TagAnswer:
        if self._maintenance is None:
            self._maintenance = tags_of(self._stream)
        return self._maintenance.make_tag(tag)

    def _judged(self, answer: TagAnswer, action: MakeTag) -> Result:
        snapshot, skip = action.snapshot.id, f"To go on without it, set skip_through = {action.decision}."
        if isinstance(answer, TagTaken):
            return Refused(
                f"The tag {action.name} of snapshot {snapshot} was not made: the name is that of "
                f"{answer.holder}. Delete or rename that one, or set another name for new tags. {skip}"
            )
        if isinstance(answer, SnapshotExpired):
            after = "while its tag was made, so that tag may have lost files" if answer.tag_is_there else ""
            return Refused(
                f"Snapshot {snapshot} of the tag {action.name} has expired "
                f"{after or 'before its tag was made'}. Keep snapshots of the table longer. "
                f"{skip}"
            )
        if isinstance(answer, TagMade):
            log.info("tag made", stream=self._stream.name, tag=action.name, snapshot=snapshot)
        return Done()

    async def close(self) -> None:
        return


def tags_of(stream: Stream) -> MakesTags:
    """Return the maintenance of a stream's table. It blocks. Raises TableRefused if it makes no tags."""
    return capable(stream.adapter.open_maintenance(stream.table), MakesTags, "making tags")


class Tags:
    """The type `tags`."""

    port_version = PORT_VERSION
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
