"""Registrations: which incarnation may add checkpoints to a region, and which assignment is in force.

Both are compare-and-set operations on the newest decided cut. A registration is judged at its own offset, by
the log alone, so every reader judges alike.

A new incarnation begins at a committed position only. While an unresolved decision moves the region, the
registration is refused, and the driver asks again. So a revert never ends an incarnation that stands on it.
"""

from sluicegate.coordinator.core.log import Log
from sluicegate.coordinator.core.state import (
    MOST_STEP,
    AssignmentState,
    Former,
    Incarnation,
    RegionPhase,
    RegionState,
)
from sluicegate.events.envelope import Envelope
from sluicegate.events.files import is_allowed_table
from sluicegate.events.models import MOST_REGION_NAMES, MOST_REGIONS, RegionRegistered
from sluicegate.events.problems import Code, Problem


def judge(log: Log, offset: int, envelope: Envelope, body: RegionRegistered) -> Problem | None:
    """Return the reason for a refusal; None if the registration is valid. Change nothing."""
    return (
        _policy_problem(log, envelope, body)
        or _assignment_problem(log, envelope.region, body)
        or _incarnation_problem(log, offset, envelope, body)
    )


def accept(log: Log, offset: int, envelope: Envelope, body: RegionRegistered) -> None:
    """Apply a valid registration."""
    state = log.state
    if state.assignment is None or body.assignment.number > state.assignment.number:
        _begin_assignment(log, body)
    region = state.regions.setdefault(envelope.region, RegionState())
    if region.live_incarnation != envelope.incarnation:
        _begin_incarnation(log, offset, envelope, body)
    region.phase, region.final = RegionPhase.LIVE, None
    # A registration is a beginning: heartbeats of an older process do not count any more.
    region.idle, region.rests, region.begun = body.rests, body.rests, None
    region.run, region.registered, region.declined = envelope.id, offset, None


def _policy_problem(log: Log, envelope: Envelope, body: RegionRegistered) -> Problem | None:
    policy, name = log.state.policy, envelope.region
    if policy.number == 0:
        return Problem(code=Code.NO_POLICY, region=name)
    if policy.regions and not {*body.assignment.regions} <= {*policy.regions}:
        return Problem(code=Code.REGION_NOT_ALLOWED, region=name, names=policy.regions)
    if not is_allowed_table(body.table, policy.allowed_locations):
        return Problem(
            code=Code.OTHER_TABLE, region=name, names=policy.allowed_locations, detail=body.table or ""
        )
    if unknown := sorted({*body.tables} - policy.tables.keys()):
        return Problem(code=Code.OTHER_TABLE, region=name, table=unknown[0], names=tuple(policy.tables))
    return None


# --- assignments ----------------------------------------------------------------------------------


def _assignment_problem(log: Log, name: str, body: RegionRegistered) -> Problem | None:
    wanted, current = body.assignment, log.state.assignment
    if name not in wanted.regions:
        return Problem(code=Code.REGION_NOT_ASSIGNED, region=name, names=wanted.regions)
    if current is not None and wanted.number < current.number:
        return Problem(code=Code.ASSIGNMENT_OLDER, number=wanted.number, other=current.number)
    if current is not None and wanted.number == current.number:
        if {*wanted.regions} != {*current.regions}:
            return Problem(code=Code.ASSIGNMENT_DIFFERS, number=current.number, names=tuple(current.regions))
        # A driver reads the source offsets of the cut that it names: another cut doubles or skips rows.
        return _follows_other_cut(body, current.after)
    if wanted.number > max(current.number if current is not None else 0, log.state.withdrawn) + MOST_STEP:
        # The next assignment needs a higher number, and numbers have a limit.
        return Problem(code=Code.ASSIGNMENT_TOO_HIGH, number=wanted.number, other=MOST_STEP)
    if wanted.number <= log.state.withdrawn:
        return Problem(code=Code.ASSIGNMENT_WITHDRAWN, number=wanted.number, other=log.state.withdrawn)
    names = {*log.state.regions, *wanted.regions}
    if len(names) > MOST_REGIONS or sum(map(len, names)) > MOST_REGION_NAMES:
        # Each decision names the positions of all of them, and each state record has them.
        return Problem(code=Code.TOO_MANY_REGIONS, number=wanted.number, other=len(names))
    return _succession_problem(log, body) if current is not None else _adopted_problem(log, body)


def _adopted_problem(log: Log, body: RegionRegistered) -> Problem | None:
    """Return the reason if the first assignment after an adoption does not continue its positions.

    Positions that an operator stated have no assignment. The same regions continue from their own positions.
    Others begin where the job says, so it must have read the offsets of this very cut.
    """
    state = log.state
    if {*state.regions} == {*body.assignment.regions}:
        return None
    return _follows_other_cut(body, state.decided) if state.cut else None


def _succession_problem(log: Log, body: RegionRegistered) -> Problem | None:
    """Return the reason if the current assignment has not ended, or the next one follows another cut."""
    number = body.assignment.number
    if open_regions := tuple(log.state.active()):
        return Problem(code=Code.ASSIGNMENT_OPEN, number=number, names=open_regions)
    if log.state.unresolved is not None:
        return Problem(code=Code.ASSIGNMENT_UNRESOLVED, number=number, other=log.state.decided)
    return _follows_other_cut(body, log.state.decided)


def _follows_other_cut(body: RegionRegistered, decision: int) -> Problem | None:
    """Return the reason if the assignment names another decision than this one as the one that it follows."""
    if body.assignment.after == decision:
        return None
    return Problem(code=Code.ASSIGNMENT_AFTER_OTHER_CUT, number=body.assignment.number, other=decision)


def _begin_assignment(log: Log, body: RegionRegistered) -> None:
    """Put an assignment in force. The one before can be brought back until the first cut of this one."""
    state, wanted = log.state, body.assignment
    adopted = state.assignment is None and bool(state.regions)
    if adopted or (state.assignment is not None and not state.assignment.provisional):
        regions = {name: each.model_copy(deep=True) for name, each in state.regions.items()}
        state.former = Former(assignment=state.assignment, regions=regions)
    else:
        # Nothing of the assignment in between was decided, so nobody brings it back.
        for name in [name for name, each in state.regions.items() if each.accepts_checkpoints]:
            log.end_incarnation(name, RegionPhase.WAITING)
    state.assignment = AssignmentState(number=wanted.number, regions=list(wanted.regions), after=wanted.after)
    # Every region is gone, so nobody can complete or commit the checkpoints that are still pending.
    log.pending.clear()
    for name, region in state.regions.items():
        region.fallbacks, region.fault = 0, None
        if name in wanted.regions:
            region.phase, region.final, region.idle = RegionPhase.WAITING, None, False
        else:
            region.phase = RegionPhase.LEFT


# --- incarnations ---------------------------------------------------------------------------------


def _incarnation_problem(log: Log, offset: int, envelope: Envelope, body: RegionRegistered) -> Problem | None:
    name, incarnation, regions = envelope.region, envelope.incarnation, log.state.regions
    region, current = log.state.region(name), log.state.assignment
    same_assignment = current is not None and current.number == body.assignment.number
    # With another assignment, every incarnation of the one before has ended.
    live = region.live_incarnation if same_assignment else None
    if live == incarnation:
        return _restart_problem(log, name, region, body)
    for other, each in regions.items():
        if each.incarnation is not None and each.incarnation.id == incarnation and other != name:
            return Problem(code=Code.INCARNATION_OF_OTHER_REGION, region=name, names=(other,))
    if current is not None and same_assignment and region.removed:
        # Comes first: no reset brings back an incarnation of a removed region.
        return _removed_problem(log, name, current)
    newest = [region.incarnation.id] if region.incarnation is not None else []
    suspended = log.state.former.suspended if log.state.former is not None else []
    if incarnation in (*newest, *suspended, *log.state.ended):
        return Problem(code=Code.INCARNATION_ENDED, region=name, incarnation=incarnation)
    if (unresolved := log.state.unresolved_of(name)) is not None:
        # A revert would take the position back, and with it everything that this incarnation reads.
        return Problem(code=Code.BASE_UNRESOLVED, region=name, incarnation=incarnation, number=unresolved)
    if body.takes_over is not None:
        return _take_over_problem(name, region, live, offset, body)
    if body.replaces != live:
        # A driver without knowledge of the live incarnation may not discard its checkpoints.
        return Problem(code=Code.INCARNATION_LIVE, region=name, incarnation=live)
    if body.base != region.position:
        # The answer contains the position, so the driver can begin there.
        return Problem(code=Code.BASE_DIFFERS, region=name, incarnation=incarnation)
    return None


def _take_over_problem(
    name: str, region: RegionState, live: str | None, offset: int, body: RegionRegistered
) -> Problem | None:
    """Return the reason if a driver without state may not replace what is live."""
    end = body.takes_over or 0
    if end > offset:
        # It cannot have seen that end, so it would win against everybody.
        return Problem(code=Code.TAKE_OVER_AHEAD, region=name, number=offset, other=end)
    if region.registered >= end:
        # It may be a late one, of a process that stood still: the one that was accepted works.
        return Problem(code=Code.TAKEN_OVER_SINCE, region=name, number=region.registered, other=end)
    # After an adoption with stated positions there are no offsets, and so none that it could misread.
    stated = region.source_offsets is not None or region.offsets_kind != ""
    kinds = {region.offsets_kind} if region.position is not None and stated else set()
    if live is not None and region.incarnation is not None:
        kinds.add(region.incarnation.offsets_kind)
    if kinds - {body.offsets_kind}:
        # It could not continue, so nothing is discarded for it.
        names = (*sorted(kinds - {body.offsets_kind}), body.offsets_kind)
        return Problem(code=Code.OFFSETS_KIND_DIFFERS, region=name, incarnation=live, names=names)
    return None


def _removed_problem(log: Log, name: str, current: AssignmentState) -> Problem:
    """Return the refusal of a removed region: with the regions that continue, or else with the assignment."""
    going = tuple(each for each in current.regions if not log.state.region(each).ends)
    # The number of a withdrawn assignment never comes back.
    number = None if going else max(current.number, log.state.withdrawn)
    return Problem(code=Code.REGION_REMOVED, region=name, names=going, number=number)


def _restart_problem(log: Log, name: str, region: RegionState, body: RegionRegistered) -> Problem | None:
    """Compare the location of a plain restart with the log."""
    life, at = region.incarnation, region.position
    if life is None:
        return None
    problem = Problem(code=Code.BASE_DIFFERS, region=name, incarnation=life.id)
    if body.base != life.base:
        return problem
    # At a position of an earlier incarnation, nothing of this one is decided.
    own = at if at is not None and at.incarnation == life.id else None
    newest = body.planned[0].checkpoint if body.planned else None
    if own is not None and (newest is None or newest < own.checkpoint):
        older = {"code": Code.LOCATION_OLDER, "checkpoint": newest, "other": own.checkpoint}
        return problem.model_copy(update=older)
    for planned in body.planned:
        known = log.pending[name].digest_of(planned.checkpoint)
        if own is not None and planned.checkpoint == own.checkpoint:
            known = own.digest
        if known is not None and known != planned.digest:
            # The source was changed, or the location comes from a backup of another course of events.
            differs = {"code": Code.SOURCE_DIFFERS, "checkpoint": planned.checkpoint}
            return problem.model_copy(update=differs)
    return None


def _begin_incarnation(log: Log, offset: int, envelope: Envelope, body: RegionRegistered) -> None:
    """Make an incarnation the newest one; undecided checkpoints of the former one are discarded."""
    name = envelope.region
    region = log.state.regions[name]
    if region.accepts_checkpoints:
        log.end_incarnation(name, RegionPhase.WAITING)
    base = region.position if body.takes_over is not None else body.base
    region.incarnation = Incarnation(
        id=envelope.incarnation, from_offset=offset, base=base, offsets_kind=body.offsets_kind
    )
    region.fault = None
    log.begin_pending(name, region)
