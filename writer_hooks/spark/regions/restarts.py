"""Reaction to the failure of a query, and the pause before its next start."""

import re
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Final

from pyspark.errors import AnalysisException

from sluicegate.events.problems import Code
from sluicegate.writer_hooks.errors import BadOption

_ERROR: Final = re.compile(r"sluicegate\.writer_hooks\.errors\.(\w+)|^(\w+):")
"""Also without the module, as the end of an idle query names it."""
_REFUSED: Final = re.compile(
    r"\(incarnation [^\s,()]+, ([a-z-]+)\)|the reset of .* was refused \(([a-z-]+)\)"
)
"""The code of a refused registration, or of a refused reset."""
_UNMENDABLE: Final = frozenset(
    {
        "BadCheckpointLocation",
        "BadListenerState",
        "BadOption",
        "EventTooLarge",
        "NotOurs",
        "PreflightFailed",
        "RegistrationRefused",
        "TopicMissing",
    }
)
_OTHER_PROCESS: Final = "another process runs"
"""Part of an error: a reset would only take the region away from that process."""
_PASSING: Final = frozenset(
    {Code.NO_POLICY, Code.ASSIGNMENT_OPEN, Code.ASSIGNMENT_UNRESOLVED, Code.BASE_UNRESOLVED}
)
"""Refusals that end by themselves."""
_MOVED_ON: Final = frozenset({Code.BASE_DIFFERS, Code.INCARNATION_LIVE})
"""Refusals of a reset during which newer decisions came. The next try begins at the newest one."""
_OF_ROWS: Final = "sluicegate.lakes.port.SchemaMismatch"
"""Error of a task whose rows have other columns than the table."""
_MAY_APPEAR: Final = "[PATH_NOT_FOUND]"
"""Condition of an error of Spark that ends when somebody creates the folder of the source."""
_VARYING: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d+")
"""Ids and numbers, which are other ones in the same error of the next run."""
UNPLANNABLE: Final = 5
"""Errors of planning in a row after which a query that never ran has failed."""


class Reaction(StrEnum):
    """Reaction to the failure of a query."""

    RESTART = "restart"
    RESET = "reset"
    """The location is set back to the committed position first."""
    FAIL = "fail"
    """No restart helps."""


def reaction(error: str) -> Reaction:
    """Return the reaction to the text of an error, which contains the class of the hooks' own errors."""
    names = [long or short for long, short in _ERROR.findall(error)]
    name = names[-1] if names else ""
    if name == "RegionReplaced":
        return Reaction.FAIL if _OTHER_PROCESS in error else Reaction.RESET
    if name == "RegistrationRefused":
        codes = _REFUSED.findall(error)
        registration, reset = codes[-1] if codes else ("", "")
        if registration == Code.INCARNATION_ENDED:
            return Reaction.RESET
        if (registration or reset) in _PASSING or reset in _MOVED_ON:
            return Reaction.RESTART
    return Reaction.FAIL if name in _UNMENDABLE else Reaction.RESTART


def planning_error(error: BaseException) -> str | None:
    """Return what is equal in each repetition of an error of planning; None for another error.

    Such an error is that of a query whose columns, options or functions do not fit. A cause of the error
    counts too, because an error of planning may end a query that has started.
    """
    each: BaseException | None = error
    while each is not None:
        if isinstance(each, AnalysisException) and _MAY_APPEAR not in str(each):
            return _same(str(each))
        each = getattr(each, "_cause", None) or each.__cause__
    return _same(_OF_ROWS) if _OF_ROWS in str(error) else None


def _same(text: str) -> str:
    return _VARYING.sub("", text.partition("\n")[0])


@dataclass(frozen=True, slots=True)
class Backoff:
    """Limits of restarts. The pauses grow by two, with full jitter."""

    first: float = 1.0
    """Seconds: the longest pause before the first restart."""
    longest: float = 300.0
    """Seconds: no pause is longer."""
    max_failures: int | None = None
    """Failures in a row, without a batch in between, after which the region has failed; None: no limit."""

    def __post_init__(self) -> None:
        """Raise BadOption for limits that contradict each other."""
        if not 0 <= self.first <= self.longest or (self.max_failures is not None and self.max_failures < 1):
            raise BadOption(
                f"the limits of restarts are invalid: {self}; use 0 <= first <= longest, and max_failures "
                "above 0 or None"
            )

    def pause(self, failures: int, random: Random) -> float:
        """Return the seconds before the next start, after this many failures in a row."""
        limit = min(self.longest, self.first * 2.0 ** min(failures - 1, 60))
        return random.uniform(0.0, limit)

    def is_exhausted(self, failures: int) -> bool:
        """Return True if no restart follows this many failures in a row."""
        return self.max_failures is not None and failures >= self.max_failures
