"""Commits of the region of a driver, from the notifications of its stream."""

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from sluicegate.events.models import Position
from sluicegate.events.notifications import (
    Committed,
    IncarnationsEnded,
    Notification,
    RegistrationAnswered,
    Stalled,
)
from sluicegate.events.problems import Problem
from sluicegate.writer_hooks.backpressure import (
    FIRST_QUESTION,
    QUESTIONS,
    Backpressure,
    Repetition,
    questions,
)
from sluicegate.writer_hooks.errors import (
    HookError,
    PublishFailed,
    RegionReplaced,
    RegionStalled,
    RegistrationUnanswered,
    TooManyUncommitted,
)
from sluicegate.writer_hooks.region import Region, Registered
from sluicegate.writer_hooks.registration import ask, require_live

_log = logging.getLogger(__name__)

_FIRST_WARNING: Final = 10.0
"""Seconds of a wait before the first warning; the next ones follow at doubling intervals."""
_DOUBT_PATIENCE: Final = 5.0
"""Seconds for a coordinator to say if the driver was replaced; the next call asks again."""
_LOOK: Final = 1.0
"""Seconds between two looks of a waiting thread at the doubt."""


@dataclass(frozen=True, slots=True)
class CommittedCheckpoint:
    """A checkpoint of the region, with the place in the caller's source after it."""

    number: int
    source_offsets: Any
    """As they were given to `complete`, through JSON; None: its driver published none."""
    position: Position


class DriverState:
    """Completed and committed checkpoints of one driver. Safe for several threads."""

    def __init__(self, region: Region, on_commit: Callable[[CommittedCheckpoint], None] | None) -> None:
        self.lock = threading.Condition()
        self._asking = threading.Lock()
        self._region = region
        self._on_commit = on_commit
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
            # Another driver may have registered between the own answer and this call.
            self._doubted = self._run in self._answered and self._newest_live != self._incarnation

    def completing(self, checkpoint: CommittedCheckpoint) -> None:
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

    def refused(self, number: int) -> None:
        """Note that a completion is not in the log."""
        with self.lock:
            self._uncommitted.pop(number, None)
            self._completed_at.pop(number, None)

    def answered(self, run: str) -> None:
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

    def look(self, registered: Registered, base: Position | None) -> None:
        """Do as `check`, and ask at intervals while a completed checkpoint waits for its commit.

        Without a commit nobody else says that the log does not know this driver, as after an adoption.
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
                left = _LOOK if until is None else min(_LOOK, until - time.monotonic())
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

    def await_room(self, limit: Backpressure, require_live: Callable[[], object]) -> None:
        """Return when another checkpoint may begin. Raises TooManyUncommitted if the limit says fail.

        `require_live` asks the coordinator after a `doubt`, as during a wait in which no commit arrives.
        """
        warning = Repetition(time.monotonic(), _FIRST_WARNING)
        question = questions(limit.reaction, time.monotonic())
        while (excess := self._excess(limit)) is not None:
            if question.is_due(time.monotonic()):
                self.doubt()
                require_live()
                continue
            place = f"region {self._region.name} of stream {self._region.stream}: {excess}"
            if limit.reaction == "fail":
                raise TooManyUncommitted(
                    f"{place}. Nothing is lost; `sluicegate status` shows what the commits wait for. Begin "
                    "again when they follow"
                )
            if warning.is_due(time.monotonic()):
                _log.warning("%s; `sluicegate status` shows what the commits wait for", place)
            if limit.reaction == "warn":
                return
            with self.lock:
                if self._excess(limit) is not None:
                    self.lock.wait(_LOOK)
            require_live()

    def _excess(self, limit: Backpressure) -> str | None:
        """Return the limit that is exceeded."""
        with self.lock:
            return limit.excess(self._completed_at, time.monotonic())

    def _committed_from(self, number: int) -> CommittedCheckpoint | None:
        """Return the newest committed checkpoint if it is this one or a later one of the incarnation."""
        found = self._committed
        if found is None or found.position.incarnation != self._incarnation or found.number < number:
            return None
        return found

    # --- notifications ----------------------------------------------------------------------------

    def read(self, notification: Notification) -> None:
        """Apply a notification of the stream."""
        body, name = notification.body, self._region.name
        if isinstance(body, Committed):
            self._read_commit(body.cut.get(name))
        elif isinstance(body, RegistrationAnswered):
            if notification.region == name:
                self._read_answer(body)
        elif isinstance(body, IncarnationsEnded):
            if body.incarnations.get(name) == self._incarnation:
                self.doubt()
        elif isinstance(body, Stalled) and body.problem.region in ("", None, name) and not body.ended:
            _log.warning("region %s of %s is stalled. %s", name, self._region.stream, body.reason)
            if body.problem.region == name:
                self._stall = body.problem
                self.doubt()

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
