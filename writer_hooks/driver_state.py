"""State of a driver that has no checkpoint location: RegionDriver, and batch jobs.

Such a driver keeps nothing on disk. It starts a new incarnation at the committed position of its region,
and gets the source offsets of that position back from the coordinator. Its checkpoints are completed in
order, each with the source offsets after it. The notifications of the stream say which of them are
committed.
"""

import json
import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple
from uuid import uuid4

from sluicegate.events.models import CheckpointCompleted, Position, default_source_digest
from sluicegate.events.notifications import (
    Committed,
    IncarnationsEnded,
    Notification,
    RegistrationAnswered,
    Stalled,
)
from sluicegate.events.problems import Problem
from sluicegate.writer_hooks.commit_feed import OnOutcome, RegionProgress
from sluicegate.writer_hooks.errors import (
    BadOption,
    HookError,
    NotOurs,
    PublishFailed,
    RegionReplaced,
    RegionStalled,
    RegistrationUnanswered,
    SourceOffsetsUnknown,
)
from sluicegate.writer_hooks.numbering import require_one_writer
from sluicegate.writer_hooks.options import FIRST_QUESTION, QUESTIONS, Backpressure
from sluicegate.writer_hooks.region import LONGEST_OFFSETS, Region, Registered
from sluicegate.writer_hooks.registration import (
    ask,
    ask_until_known,
    await_commits,
    has_moved_on,
    require_accepted,
    require_live,
)
from sluicegate.writer_hooks.writer import WriterResult

_log = logging.getLogger(__name__)

DRIVER: Final = "driver-"
"""Incarnations of a RegionDriver begin with it. The source offsets of others have another notation."""
_ATTEMPTS: Final = 5
"""Registrations of one start, each after a newer decision."""
_FIRST_WARNING: Final = 10.0
"""Seconds of a wait before the first warning; the next ones follow at doubling intervals."""
_DOUBT_PATIENCE: Final = 5.0
"""Seconds for a coordinator to say if the driver was replaced; the next call asks again."""
_POLL: Final = 1.0
"""Seconds between two checks of a waiting thread for a doubt."""


# --- the start, at the committed position -------------------------------------------------------------


class NewIncarnation(NamedTuple):
    """A new incarnation that is in force."""

    registered: Registered
    base: Position | None
    """Committed position that it starts from; None: the region has none."""
    source_offsets: str | None
    """Source offsets of the base, if its driver published them."""


def probe(region: Region, kind: str, *, take_over: bool = False) -> RegistrationAnswered:
    """Ask for the committed position and its source offsets; nothing is changed.

    While a decision that moves the region has no outcome, the call waits for it. The arguments and errors are
    those of `begin_incarnation`.
    """
    incarnation = f"{kind}{uuid4().hex}"
    _, answer = ask_until_known(region, lambda: region.registration(incarnation, None, probe=True))
    if not answer.accepted and (not has_moved_on(answer) or answer.unresolved is not None):
        require_accepted(region, incarnation, answer)
    if not take_over:
        _require_own(region, kind, answer)
    return answer


def begin_incarnation(
    region: Region,
    kind: str,
    *,
    take_over: bool = False,
    rests: bool = False,
    seen: RegistrationAnswered | None = None,
) -> NewIncarnation:
    """Register a new incarnation in the place of the live one, and wait for the answer.

    It replaces only what was live at the first look. A driver that stands still between the two would else
    end one that was started meanwhile, and works.

    - `kind`: how the name of the incarnation begins.
    - `take_over`: also after another kind of driver.
    - `rests`: the region is idle whenever nothing of it is pending, and no heartbeat is expected.
    - `seen`: an earlier answer to a probe, which is the first look.

    Raises RegistrationRefused, RegistrationUnanswered, PublishFailed, TopicMissing, SourceOffsetsUnknown, or
    RegionReplaced.
    """
    answer = probe(region, kind, take_over=take_over) if seen is None else seen
    first, incarnation = answer.live, f"{kind}{uuid4().hex}"
    for _ in range(_ATTEMPTS):
        base, replaces = answer.committed, answer.live
        event = region.registration(incarnation, base, replaces=replaces, rests=rests)
        answer = ask(region, event)
        if answer.accepted:
            if replaces is not None:
                place = (region.name, region.stream, replaces)
                _log.info("region %s of %s: this driver replaces the incarnation %s", *place)
            return NewIncarnation(Registered(incarnation, event.envelope.id), base, answer.source_offsets)
        if not has_moved_on(answer):
            break
        if answer.unresolved is not None:
            # It came after the probe, and is mostly committed at once.
            answer = probe(region, kind, take_over=take_over)
        elif not take_over:
            _require_own(region, kind, answer)
        if answer.live not in (None, first):
            raise RegionReplaced(
                f"another {kind.removesuffix('-')} has registered since this one began to start: "
                f"{answer.live} is live in the region {region.name} of the stream {region.stream}. Nothing "
                "was registered. If that one works, leave this one stopped; else start again"
            )
    require_accepted(region, incarnation, answer)
    raise AssertionError("an accepted registration has returned")


def _require_own(region: Region, kind: str, answer: RegistrationAnswered) -> None:
    """Refuse a region whose source offsets this kind of driver cannot read. Nothing was changed yet."""
    at = answer.committed.incarnation if answer.committed is not None else None
    others = [each for each in (answer.live, at) if each is not None and not each.startswith(kind)]
    if others:
        raise SourceOffsetsUnknown(
            f"the region {region.name} of the stream {region.stream} is or was written by another kind of "
            f"driver, such as a query of Spark (incarnation {others[0]}). Give this driver another region. "
            "Or end the other one, wait until all that it completed is committed, and start this one with "
            "take_over=True: `start` returns the source offsets that the other one published, and your "
            "source has to continue there"
        )


# --- a completion: the events that count, and the place in the source ---------------------------------


def completion(
    checkpoint: tuple[str, int],
    results: Sequence[WriterResult],
    *,
    predecessor: Position | None,
    source_offsets: str | None,
    watermark: int | None,
    listeners: Mapping[str, str],
) -> CheckpointCompleted:
    """Return the body of a completion of a checkpoint, given as (incarnation, number).

    Without a watermark, the highest event time of the rows counts. Raises NotOurs for results of another
    checkpoint, two of one writer, or two with rows of one key.
    """
    incarnation, number = checkpoint
    for result in results:
        attempt = result.attempt
        if (attempt.incarnation, attempt.checkpoint) != checkpoint:
            raise NotOurs(
                f"checkpoint {number} of {incarnation} was given a result of checkpoint "
                f"{attempt.checkpoint} of {attempt.incarnation}; give the results of its own writers"
            )
    names = sorted(result.attempt.writer for result in results)
    if len({*names}) < len(names):
        raise NotOurs(
            f"checkpoint {number} was given two results of one writer ({', '.join(names)}); give one of "
            "each, or the rows count twice"
        )
    require_one_writer(results)
    events = tuple(event for result in results for event in result.written.events)
    times = [each.written.max_event_time for each in results if each.written.max_event_time is not None]
    return CheckpointCompleted.model_validate(
        {
            "events": events,
            "predecessor": predecessor,
            "source_digest": default_source_digest(number, events, source_offsets),
            "watermark": watermark if watermark is not None else max(times, default=None),
            "listeners": dict(listeners),
            "source_offsets": source_offsets,
        }
    )


def offsets_text(source_offsets: Any) -> str:
    """Return source offsets in canonical JSON. Raises BadOption if they do not come back from it as they are.

    A restart compares with what it gets back: a key 0 that comes back as "0" is not found, and its rows are
    read again.
    """
    if source_offsets is None:
        raise BadOption(
            "source_offsets must not be None: it is the place in your source after this checkpoint, and the "
            "only thing that a restart continues from. Give JSON data, such as {} for a source without one"
        )
    try:
        text = json.dumps(source_offsets, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadOption(f"source_offsets must be JSON data: {error}") from error
    if (found := json.loads(text)) != source_offsets:
        raise BadOption(
            f"source_offsets must be JSON data that come back unchanged, and {source_offsets!r} comes back "
            f"as {found!r}. Use texts as keys, and lists"
        )
    if len(text) > LONGEST_OFFSETS:
        raise BadOption(
            f"source_offsets have {len(text)} characters as JSON, and {LONGEST_OFFSETS} are the most. Keep "
            "the place in the source elsewhere, and give its name"
        )
    return text


def parsed_offsets(text: str | None) -> Any:
    """Return published source offsets; text of another kind of driver that is no JSON stays text."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


# --- commits of the region, from the notifications of its stream --------------------------------------


@dataclass(frozen=True, slots=True)
class CommittedCheckpoint:
    """A checkpoint of the region, with the place in the caller's source after it."""

    number: int
    source_offsets: Any
    """As they were given to `complete`, through JSON; None: its driver published none."""
    position: Position


class DriverState:
    """Completed and committed checkpoints of one driver. Safe for several threads."""

    def __init__(
        self,
        region: Region,
        on_commit: Callable[[CommittedCheckpoint], None] | None = None,
        on_outcome: OnOutcome | None = None,
    ) -> None:
        self.lock = threading.Condition()
        self._asking = threading.Lock()
        self._region = region
        self._on_commit = on_commit
        self._on_outcome = on_outcome
        self._progress = RegionProgress(region.stream, region.name)
        self._incarnation = self._run = ""
        self._answered: set[str] = set()
        """Ids of the registrations of the region whose answers were read."""
        self._newest_live: str | None = None
        """Live incarnation as of the newest answer that was read."""
        self._committed: CommittedCheckpoint | None = None
        self._uncommitted: dict[int, CommittedCheckpoint] = {}
        """By number, checkpoints whose completion was published."""
        self._completed_at: dict[int, float] = {}
        """By number, the time of that, in monotonic seconds."""
        self._doubted = False
        self._stall: Problem | None = None
        """Newest stall of the region that was read."""
        self._asked = -math.inf
        """Time of the newest question for a commit, in monotonic seconds."""
        self._error: HookError | None = None

    @property
    def committed(self) -> CommittedCheckpoint | None:
        """The newest checkpoint that is known to be committed."""
        with self.lock:
            return self._committed

    def begin(self, registered: Registered, after: CommittedCheckpoint | None) -> None:
        """Begin an incarnation after a position."""
        with self.lock:
            self._run, self._incarnation = registered.run, registered.incarnation
            self._committed = after
            self._progress.begin(after.position if after is not None else None)
            # Another driver may have registered between the own answer and this call.
            self._doubted = self._run in self._answered and self._newest_live != self._incarnation

    def add_completed(self, checkpoint: CommittedCheckpoint) -> None:
        """Note a checkpoint before its completion is published, so that no commit of it is missed."""
        with self.lock:
            if self._committed_from(checkpoint.number) is not None:
                return  # a repetition, and the first try is committed
            self._uncommitted[checkpoint.number] = checkpoint
            self._completed_at.setdefault(checkpoint.number, time.monotonic())

    def oldest(self) -> tuple[int, float] | None:
        """Return the oldest completed checkpoint that is not committed, with the time of its completion."""
        with self.lock:
            number = min(self._completed_at, default=None)
            return None if number is None else (number, self._completed_at[number])

    def remove_completed(self, number: int) -> None:
        """Note that a completion is not in the log."""
        with self.lock:
            self._uncommitted.pop(number, None)
            self._completed_at.pop(number, None)

    def add_answered(self, run: str) -> None:
        """Note a registration whose answer was read by another process."""
        with self.lock:
            self._answered.add(run)

    def doubt(self) -> None:
        """Keep a doubt that no coordinator has answered."""
        with self.lock:
            self._doubted = True

    def check(self, registered: Registered, base: Position | None) -> RegistrationAnswered | None:
        """Raise RegionReplaced if the driver was replaced. If there is a doubt, the coordinator is asked.

        Return its answer; None if nothing was asked, or nobody answered. Then the doubt stays, and the driver
        continues: if it was replaced, nothing that it completes counts.
        """
        # A thread waits for the answer that another one has asked for.
        with self._asking:
            answer = self._check(registered, base)
        if answer is not None:
            # A notification of it may never arrive here, such as one that the topic does not keep any more.
            self._read_commit(answer.committed)
        return answer

    def check_waiting(self, registered: Registered, base: Position | None) -> None:
        """Do as `check`, and ask at intervals while a completed checkpoint waits for its commit.

        Without a commit nobody else reports that the log does not know this driver, as after an adoption.
        """
        oldest = self.oldest()
        if oldest is not None and self._is_question_due(oldest[0]):
            self.doubt()
        self.check(registered, base)

    def _check(self, registered: Registered, base: Position | None) -> RegistrationAnswered | None:
        with self.lock:
            if self._error is not None:
                raise self._error
            doubted, self._doubted = self._doubted, False
        if not doubted:
            return None
        patience = min(self._region.registration_timeout, _DOUBT_PATIENCE)
        region = replace(self._region, registration_timeout=patience)
        try:
            answer = ask(region, region.registration(registered.incarnation, base, probe=True))
            require_live(region, registered, answer, "this region")
            self._require_no_stall(registered, answer)
        except RegionReplaced as error:
            with self.lock:
                self._error = error
                self.lock.notify_all()
            raise
        except (PublishFailed, RegistrationUnanswered) as error:
            self.doubt()
            place = (region.name, region.stream)
            _log.warning(
                "region %s of %s: no coordinator says if another driver has taken the region (%s)",
                *place,
                error,
            )
            return None
        except BaseException:
            self.doubt()
            raise
        return answer

    def _require_no_stall(self, registered: Registered, answer: RegistrationAnswered) -> None:
        """Raise RegionStalled if the own incarnation is stalled: nothing of it is committed again."""
        problem, name = answer.problem, self._region.name
        if answer.live == registered.incarnation and problem is not None and problem == self._stall:
            raise RegionStalled(
                f"the region {name} of the stream {self._region.stream} is stalled, and nothing that this "
                f"driver completes is committed. {answer.reason} A new driver of the region begins at its "
                "committed position"
            )

    def await_commit(
        self, number: int, timeout: float | None, require_live: Callable[[], object]
    ) -> CommittedCheckpoint:
        """Wait for the commit of a completed checkpoint. `require_live` raises if it can never come."""
        until = None if timeout is None else time.monotonic() + timeout
        began = time.monotonic()
        pause = _FIRST_WARNING
        while True:
            with self.lock:
                found = self._committed_from(number)
                left = _POLL if until is None else min(_POLL, until - time.monotonic())
                if found is None and left > 0:
                    self.lock.wait(left)
                    found = self._committed_from(number)
            if found is not None:
                return found
            if time.monotonic() - began >= pause:
                _log.warning(
                    "checkpoint %d of the region %s of the stream %s is not committed after %d s; "
                    "`sluicegate status` shows what it waits for",
                    *(number, self._region.name, self._region.stream, pause),
                )
                pause *= 2
            if self._is_question_due(number):
                self.doubt()
                require_live()
                continue
            if until is not None and time.monotonic() >= until:
                raise TimeoutError(
                    f"checkpoint {number} of the region {self._region.name} of the stream "
                    f"{self._region.stream} is not committed after {timeout:g} s. Nothing is lost, and the "
                    "commit may still follow; `sluicegate status` shows what it waits for"
                )
            require_live()

    def _is_question_due(self, number: int) -> bool:
        """Return True if a coordinator is to be asked for a commit, and then not for a while."""
        now = time.monotonic()
        with self.lock:
            waits = now - self._completed_at.get(number, now)
            is_due = waits >= FIRST_QUESTION and now - self._asked >= QUESTIONS
            self._asked = now if is_due else self._asked
        return is_due

    def await_commits(self, limit: Backpressure, require_live: Callable[[], object]) -> None:
        """Return when another checkpoint may begin. Raises TooManyUncommitted if the limit says fail.

        `require_live` asks the coordinator after a `doubt`, as during a wait in which no commit arrives.
        """
        wait = _DriverWait(self, limit, require_live)
        await_commits(self._region, limit, wait, "Begin again when they follow")

    def excess(self, limit: Backpressure) -> str | None:
        """Return the limit that is exceeded, as a text; None if there is none."""
        with self.lock:
            return limit.excess(self._completed_at, time.monotonic())

    def _committed_from(self, number: int) -> CommittedCheckpoint | None:
        """Return the newest committed checkpoint if it is this one or a later one of the incarnation."""
        found = self._committed
        if found is None or found.position.incarnation != self._incarnation or found.number < number:
            return None
        return found

    # --- notifications ----------------------------------------------------------------------------

    def apply(self, notification: Notification) -> None:
        """Apply a notification of the stream."""
        body, name = notification.body, self._region.name
        outcome = self._progress.apply(body)
        if isinstance(body, Committed):
            self._read_commit(body.cut.get(name))
        elif isinstance(body, RegistrationAnswered):
            if notification.region == name:
                self._read_answer(body)
        elif isinstance(body, IncarnationsEnded):
            if body.incarnations.get(name) == self._incarnation:
                self.doubt()
        elif isinstance(body, Stalled) and not body.ended:
            if body.problem.region == name:
                self._stall = body.problem
                self.doubt()
            elif not body.problem.region:
                _log.warning("the stream %s is stalled. %s", self._region.stream, body.reason)
        if outcome is not None and self._on_outcome is not None:
            try:
                self._on_outcome(outcome)
            except Exception:
                _log.exception("on_outcome failed for %s", outcome)

    def _read_answer(self, answer: RegistrationAnswered) -> None:
        """Doubt the own registration if a later answer names another live incarnation.

        It may be the repetition of an old one, so it decides nothing itself. Answers from before the one to
        the own registration name the driver before.
        """
        with self.lock:
            self._answered.add(answer.registration)
            self._newest_live = answer.live
            if self._run in self._answered and answer.live != self._incarnation:
                self._doubted = True

    def _read_commit(self, at: Position | None) -> None:
        with self.lock:
            if at is None or at.incarnation != self._incarnation:
                return
            found = self._uncommitted.get(at.checkpoint)
            if found is None or found.position != at:
                return  # a repetition of a notification
            self._committed = found
            for number in [each for each in self._uncommitted if each <= at.checkpoint]:
                del self._uncommitted[number], self._completed_at[number]
            self.lock.notify_all()
        if self._on_commit is not None:
            try:
                self._on_commit(found)
            except Exception:
                _log.exception("on_commit failed for checkpoint %d of %s", at.checkpoint, self._region.name)


@dataclass(frozen=True, slots=True)
class _DriverWait:
    """Wait of a driver whose state exceeds a limit (see CommitWait)."""

    state: DriverState
    limit: Backpressure
    require_live: Callable[[], object]

    def excess(self) -> str | None:
        return self.state.excess(self.limit)

    def ask(self) -> None:
        self.state.doubt()
        self.require_live()

    def pause(self, excess: str) -> None:
        with self.state.lock:
            if self.excess() is not None:
                self.state.lock.wait(_POLL)
        self.require_live()
