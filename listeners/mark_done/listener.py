"""The listener that marks partitions as done: outcomes and time go to the policy, marks become actions.

The policy needs the kinds of the table's partition fields, which only the table knows. An action reads them
once, and again when a commit names a field that is not known. Until then, commits wait in the state, in
order. So the marks are the same whenever the table was read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sluicegate.events.models import CutReverted
from sluicegate.events.notifications import Notification, NotificationType, SavepointTaken
from sluicegate.lakes.partition_layout import FieldKind, PartitionField, PartitionLayout
from sluicegate.lakes.port import LakeUnavailable, TableRefused
from sluicegate.listeners.actions import Warn, notification_id, warn
from sluicegate.listeners.http_report import send_report
from sluicegate.listeners.mark_done import policy
from sluicegate.listeners.mark_done.custom import call, load_function
from sluicegate.listeners.mark_done.layouts import (
    check_actions,
    check_layout,
    in_order,
    read_layout,
    resolver,
)
from sluicegate.listeners.mark_done.options import ActionName, MarkDoneOptions
from sluicegate.listeners.mark_done.policy import Mark
from sluicegate.listeners.mark_done.progress import Commit, Progress
from sluicegate.listeners.mark_done.reports import done_event, done_mark, report
from sluicegate.listeners.mark_done.success_file import put_success_file
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

    async def close(self) -> None:
        return

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
    snapshot = body.snapshot.snapshot if body.snapshot is not None else None
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

    port_version = PORT_VERSION
    options = MarkDoneOptions

    def check(self, options: MarkDoneOptions, stream: Stream) -> None:
        """Raise ListenerRefused if the settings make no sense for the format of the stream."""
        check_actions(options, stream)
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
