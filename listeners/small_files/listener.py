"""The listener that gives hints about small files: the policy decides, hints become actions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sluicegate.events.models import CommitSummary
from sluicegate.events.notifications import Committed, Notification, NotificationType, SmallFiles
from sluicegate.lakes.port import LakeUnavailable, TableRefused
from sluicegate.listeners.actions import Warn, notification_id, warn
from sluicegate.listeners.http_report import send_report
from sluicegate.listeners.mark_done.layouts import in_order, read_layout
from sluicegate.listeners.mark_done.progress import name_of
from sluicegate.listeners.port import (
    PORT_VERSION,
    Action,
    Done,
    Failed,
    Listener,
    Outcome,
    Refused,
    Result,
    Services,
    Step,
    Stream,
)
from sluicegate.listeners.small_files import policy
from sluicegate.listeners.small_files.options import ActionName, SmallFilesOptions
from sluicegate.listeners.small_files.policy import Counts, Hint, Part, Seen

TYPE_NAME = "small-files"


@dataclass(frozen=True)
class Give(Action):
    """One action of a hint."""

    name: ActionName = "hint-event"
    hint: Hint | None = None


class SmallFilesListener(Listener[Counts]):
    """The listener of one stream."""

    def __init__(self, options: SmallFilesOptions, stream: Stream, services: Services) -> None:
        self._options, self._stream, self._services = options, stream, services
        self._terms = options.terms
        self._fields: tuple[str, ...] = ()
        """Partition fields of the table, in its order, when they were last read."""

    def initial(self) -> Counts:
        return Counts()

    def load(self, state: Mapping[str, Any]) -> Counts:
        return Counts.model_validate(state)

    def apply(self, outcome: Outcome, state: Counts) -> Step[Counts]:
        body = outcome.body
        if not isinstance(body, Committed):
            # A reverted decision has given no files to the table.
            return self._step(policy.Decided(state))
        snapshot = body.snapshot.snapshot if body.snapshot is not None else None
        parts = small_parts(body.summary, self._terms.smaller_than) if body.files else ()
        decided = policy.commit(state, Seen(body.decision, outcome.time, snapshot, parts), self._terms)
        step = self._step(decided)
        if decided.counts.unknown == state.unknown:
            return step
        text = "the sizes of the files of a commit are unknown, so hints lack them"
        fields = (("decisions", decided.counts.unknown),)
        return Step(step.state, (Warn(f"unknown/{body.decision}", text, fields), *step.actions), step.wake)

    def due(self, now: int, state: Counts) -> Step[Counts]:
        return self._step(policy.elapse(state, now, self._terms))

    def _step(self, decided: policy.Decided) -> Step[Counts]:
        actions = tuple(
            Give(f"{name}/{hint.key}", f"hint at {hint.files} small files: {name}", name, hint)
            for hint in decided.hints
            for name in self._options.actions
        )
        return Step(decided.counts, actions, policy.wake(decided.counts, self._terms))

    async def run(self, action: Action) -> Result:
        match action:
            case Warn():
                return warn(action, self._stream.name)
            case Give(hint=Hint() as hint):
                return await self._give(action, hint)
        return Refused(f"the action {action.key} is of another listener. Upgrade the service")

    async def _give(self, action: Give, hint: Hint) -> Result:
        stream = self._stream
        key = notification_id(stream.name, TYPE_NAME, action.key)
        try:
            values = await self._in_order(hint.values)
        except LakeUnavailable as error:
            return Failed(f"the partition fields of the table cannot be read: {error}")
        body = _event(hint, values, stream)
        if action.name == "http-report":
            fields = {**body.model_dump(), "table": stream.table.name, "path": stream.table.location}
            return await send_report(self._services.http, self._options, key, fields)
        await self._services.publish(
            Notification(key, NotificationType.SMALL_FILES, stream.name, "", "", body)
        )
        return Done()

    async def _in_order(self, values: Mapping[str, str | None]) -> Mapping[str, str | None]:
        """Return values in the order of the table's fields. Raises LakeUnavailable."""
        if len(values) < 2:
            return values
        if not values.keys() <= set(self._fields):
            try:
                layout = await self._services.in_thread(lambda: read_layout(self._stream))
            except TableRefused:
                # Without its table, a hint helps nobody, and its order matters less.
                return values
            self._fields = tuple(field.name for field in layout.fields)
        return in_order(values, self._fields)

    async def close(self) -> None:
        return


def small_parts(summary: CommitSummary | None, limit: int) -> tuple[Part, ...] | None:
    """Return the partitions that got files below a limit, which is a power of two; None if unknown."""
    if summary is None or summary.touched is None or summary.sizes is None:
        return None
    found: list[Part] = []
    for values, sizes in zip(summary.touched, summary.sizes, strict=False):
        small = [each for each in sizes if each.below <= limit]
        if small:
            found.append(Part(values, sum(each.files for each in small), sum(each.bytes for each in small)))
    return tuple(found)


def _event(hint: Hint, values: Mapping[str, str | None], stream: Stream) -> SmallFiles:
    return SmallFiles(
        table=stream.table.location,
        format=stream.format,
        partition=name_of(values),
        values=dict(values),
        smaller_than=hint.smaller_than,
        files=hint.files,
        bytes=hint.bytes,
        since=hint.since,
        decision=hint.decision,
        snapshot=hint.snapshot,
        reason=hint.reason,
    )


class SmallFilesType:
    """The type `small-files`."""

    port_version = PORT_VERSION
    options = SmallFilesOptions

    def check(self, options: SmallFilesOptions, stream: Stream) -> None:
        """Accept every stream: a table without partitions counts as one partition."""

    def open(self, options: SmallFilesOptions, stream: Stream, services: Services) -> SmallFilesListener:
        """Return a listener."""
        return SmallFilesListener(options, stream, services)


TYPE = SmallFilesType()
