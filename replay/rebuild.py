"""Rebuild: a new table from copies of the files, with the same commits in the same order."""

from dataclasses import dataclass

from sluicegate.coordinator.core.commit import Resolved
from sluicegate.coordinator.core.state import Decision, LightState
from sluicegate.events.codec import BadBody, read_files
from sluicegate.events.locations import location_problem, normal
from sluicegate.kafka.bodies import BodyUnavailable, WrittenEvent
from sluicegate.replay.base import Base
from sluicegate.replay.comparison import Comparison, Standing
from sluicegate.replay.course import Settled
from sluicegate.replay.errors import ReplayRefused
from sluicegate.replay.log import StreamLog
from sluicegate.replay.marks import Window
from sluicegate.replay.run import Pass, Say, run_over
from sluicegate.replay.tables import ReplayTable, standing


@dataclass
class Rebuilt:
    """Result of a rebuild, made or only planned."""

    commits: int = 0
    files: int = 0
    bytes: int = 0
    found: int = 0
    """Commits that an earlier, interrupted run made."""
    left: int = 0
    """1 if the last decision was left out because an operator ordered to void it, else 0."""
    done: Pass | None = None


class Rebuild:
    """One rebuild of another table from a stream's log."""

    def __init__(self, log: StreamLog, source: ReplayTable, target: ReplayTable, *, dry: bool) -> None:
        self._log = log
        self._source = source
        self._target = target
        self._dry = dry
        self._history: Comparison | None = None
        self._state: LightState | None = None
        self._result = Rebuilt()

    async def run(self, stream: str, choices: list[Base], window: Window, say: Say) -> Rebuilt:
        """Copy and commit decision by decision. Raises ReplayRefused, KafkaError, TimeoutError.

        The same command continues an interrupted run.
        """
        whole = [base for base in choices if base.whole]
        if not whole:
            raise ReplayRefused(
                "a fresh table needs the log from the stream's start, which retention has removed. Raise "
                "retention.ms of the events topic for the next time; to move a table, copy its whole folder"
            )
        if normal(self._source.settings.table) == normal(self._target.settings.table):
            raise ReplayRefused("that is the stream's own table; name another one")
        await self._prepare()
        end = await self._log.end()
        self._result.done = await run_over(self._log, stream, whole, end, window, self._take, say=say)
        return self._result

    async def _prepare(self) -> None:
        """Create the table if it is missing.

        Raises ReplayRefused if it has other content than this rebuild's.
        """
        target, user = self._target, self._target.settings.commit_user
        if self._dry and not await self._exists():
            return
        await target.call(lambda: target.caretaker.create_like(self._source.settings.table))
        state = await target.inspect()
        history = await target.history()
        strangers = {past.commit_user for past in history.commits if past.commit_user != user}
        if strangers or not history.whole:
            who = f"commits of {', '.join(sorted(strangers))}" if strangers else "an expired history"
            raise ReplayRefused(f"{target.settings.table} is not empty: it has {who}. Name a fresh table")
        self._history = Comparison(history, user)
        self._state = standing(state, target.settings, (target.caretaker.uri,))

    async def _exists(self) -> bool:
        try:
            await self._target.history()
        except ReplayRefused:
            return False
        return True

    async def _take(self, settled: Settled) -> None:
        decision = settled.decision
        # The coordinator decides between the decision and its void; a rebuild must not choose for it.
        if settled.open and decision.void is not None:
            self._result.left += 1
            return
        finding = self._history.judge(settled) if self._history else None
        if finding is not None and finding.standing is Standing.THERE:
            self._result.found += 1
            return
        if finding is not None and finding.standing is not Standing.MISSING:
            raise ReplayRefused(
                f"{self._target.settings.table} is not empty: it has another commit {decision.id} "
                f"({finding.standing}). Name a fresh table"
            )
        offsets = () if settled.voided else tuple(decision.parts)
        bodies = await self._bodies(decision, offsets)
        self._result.commits += 1
        if self._state is None or self._dry:
            return
        if not settled.voided:
            decision = decision.model_copy(update={"void": None})
        self._state.decided = decision.id
        outcome = await self._target.commit(decision, self._state, bodies)
        if isinstance(outcome, Resolved) and outcome.snapshot is None:
            raise ReplayRefused(f"{self._target.settings.table} is not empty: it has later commits")

    async def _bodies(self, decision: Decision, offsets: tuple[int, ...]) -> dict[int, WrittenEvent]:
        """Return the bodies of a decision's events for the new table, after copying their files."""
        if not offsets:
            return {}
        try:
            read = await self._log.fetcher.fetch(self._log.source.partition, offsets)
            return {offset: await self._adopt(read[offset]) for offset in offsets}
        except (BodyUnavailable, BadBody, ReplayRefused) as error:
            raise ReplayRefused(
                f"decision {decision.id} cannot be made again: {error}. The commits before it "
                + ("can be" if self._dry else "are in the new table")
            ) from error

    async def _adopt(self, written: WrittenEvent) -> WrittenEvent:
        event = read_files(written.body)
        problem = location_problem(event, self._source.settings.allowed_locations)
        if problem is not None:
            raise ReplayRefused(problem)
        self._result.files += len(event.files)
        self._result.bytes += sum(file.size for file in event.files)
        if self._dry:
            await self._target.call(lambda: self._target.caretaker.examine(event))
            return written
        adopted = await self._target.call(lambda: self._target.caretaker.adopt(event))
        return written._replace(body=adopted.model_dump_json().encode())
