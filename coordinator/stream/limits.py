"""Size limits of one commit: a region over a limit is excluded, with a code; nothing is lost.

The limits only exclude a region from the proposals of this coordinator. A decision in the log is executed
independent of its size. So two coordinators with different limits still commit the same content.
"""

from collections.abc import Callable

from sluicegate.coordinator.core.effects import CheckFiles
from sluicegate.coordinator.core.log import Log
from sluicegate.coordinator.settings.model import StreamSettings
from sluicegate.events.problems import Code, Problem


def over_limits(
    settings: StreamSettings, log: Log, effect: CheckFiles, size_of: Callable[[int], int]
) -> dict[str, Problem]:
    """Return the regions to check that are over a limit, each with the problem.

    `size_of` returns the bytes of the event at an offset.
    """
    found = {name: _too_many_files(log, name, settings.max_files_per_checkpoint) for name in effect.parts}
    problems = {name: problem for name, problem in found.items() if problem is not None}
    # The largest first: excluding few large regions leaves the most regions in the commit.
    pending = {name: _pending(log, name, size_of) for name in log.state.regions}
    total, limit = sum(pending.values()), settings.max_pending_bytes
    for name in sorted(effect.parts, key=lambda each: -pending.get(each, 0)):
        if total <= limit:
            break
        size = pending.get(name, 0)
        total -= size
        problems.setdefault(name, Problem(code=Code.TOO_MANY_BYTES, region=name, number=size, other=limit))
    return problems


def _too_many_files(log: Log, region: str, limit: int) -> Problem | None:
    for each in log.sealed(region):
        files, number = sum(part.files for part in each.checkpoint.named), each.position.checkpoint
        if files > limit:
            code = Code.TOO_MANY_FILES
            return Problem(code=code, region=region, checkpoint=number, number=files, other=limit)
    return None


def _pending(log: Log, region: str, size_of: Callable[[int], int]) -> int:
    return sum(size_of(part.offset) for each in log.sealed(region) for part in each.checkpoint.named)
