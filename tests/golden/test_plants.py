"""Defects that a schedule cannot see, each with the golden case that comes out differently."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final
from unittest.mock import patch

import pytest

from sluicegate.coordinator.core import commands, cuts, registration, replica
from sluicegate.coordinator.core.activity import Activity
from sluicegate.coordinator.core.commit import Committing
from sluicegate.coordinator.core.log import Log, PendingCheckpoints
from sluicegate.coordinator.core.machine import StreamMachine
from sluicegate.coordinator.core.outbox import Outbox
from sluicegate.coordinator.core.proposal import Candidate
from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.core.table import TableProgress
from sluicegate.events.models import StreamCommand
from sluicegate.events.problems import Code, Problem
from sluicegate.lakes.group import Group
from sluicegate.lakes.history import Evidence
from sluicegate.lakes.port import Absent
from tests.golden.script import Script
from tests.golden.test_cases import CASES


@dataclass(frozen=True)
class Plant:
    """A wrong variant of one function, and the case that sees it."""

    name: str
    owner: Any
    attribute: str
    variant: Any
    """Makes the wrong function of the right one."""
    case: str

    @contextmanager
    def planted(self) -> Iterator[None]:
        right = vars(self.owner)[self.attribute]
        with patch.object(self.owner, self.attribute, self.variant(right)):
            yield


def _reads_again(right: Any) -> Any:
    def wrong(self: StreamMachine, record: Any) -> Any:
        fresh = record.offset > self.replica.applied
        applied = right(self, record)
        if not fresh:
            self.activity.observe(record, None, 0)
        return applied

    return wrong


def _of_every_region(right: Any) -> Any:
    def wrong(log: Log, excluded: Any = (), *upto: Any) -> Any:
        if upto:
            # The cut itself is right.
            return right(log, excluded, *upto)
        return {name: sealed[-1].position for name in log.state.regions if (sealed := log.sealed(name))}

    return wrong


def _counts_for_the_next(right: Any) -> Any:
    def wrong(self: StreamMachine, effect: Any, answer: Any) -> None:
        right(self, replace(effect, decision=self.replica.state.decided + 1), answer)

    return wrong


def _ends_at_once(right: Any) -> Any:
    return lambda self, problems, applied, is_over: right(self, problems, applied, lambda stall: True)


def _forgets_exclusions(right: Any) -> Any:
    return lambda self, log, settings, excluded: right(self, log, settings, {})


def _forgets_at_the_decision(right: Any) -> Any:
    def wrong(log: Log, offset: int, time: int, body: Any) -> Any:
        found = right(log, offset, time, body)
        if found is None:
            log.forget_ended(log.state.unresolved.moves if log.state.unresolved is not None else ())
        return found

    return wrong


def _asks_nobody(right: Any) -> Any:
    def wrong(self: Any, *given: Any, left_out: Any, undo: bool) -> Any:
        answer = right(self, *given, left_out=left_out, undo=False)
        return replace(answer, elsewhere=()) if undo and isinstance(answer, Absent) else answer

    return wrong


def _tells_of_all(right: Any) -> Any:
    def wrong(self: Any, *given: Any, left_out: Any, undo: bool) -> Any:
        answer = right(self, *given, left_out=left_out, undo=undo)
        unasked = isinstance(answer, Absent) and answer.elsewhere is None
        return replace(answer, elsewhere=()) if unasked else answer

    return wrong


def _has_no_base(right: Any) -> Any:
    def wrong(self: Log, name: str, region: Any) -> None:
        right(self, name, region)
        self.state.ended = dict.fromkeys(self.state.ended, name)

    return wrong


def _waits_for_declined(right: Any) -> Any:
    def wrong(log: Log, name: str, excluded: Any) -> bool:
        region = log.state.regions.get(name)
        return right(log, name, excluded) and (region is None or region.declined is None)

    return wrong


def _forgets_answers(right: Any) -> Any:
    def wrong(self: Any, lagging: Any, silent: Any) -> None:
        self._answers.clear()

    return wrong


def _allows(name: str) -> Any:
    def variant(right: Any) -> Any:
        def wrong(log: Log, excluded: Any = (), *, waited: Any, upto: Any) -> Any:
            return right(log, excluded, waited=waited._replace(**{name: True}), upto=upto)

        return wrong

    return variant


def _any_process(right: Any) -> Any:
    def wrong(log: Log, envelope: Any, body: Any, region: Any) -> Any:
        return right(log, envelope, body.model_copy(update={"run": region.run}), region)

    return wrong


def _drops_unknown(right: Any) -> Any:
    def wrong(self: Any, record: Any) -> Any:
        dropped = record.envelope.table == "fees"
        return Problem(code=Code.UNEXPECTED) if dropped else right(self, record)

    return wrong


def _counts_late(right: Any) -> Any:
    def wrong(log: Log, body: StreamCommand) -> Problem | None:
        known = log.state.tables.get(body.table or "")
        now = known.newest.decision if known is not None else None
        found: Problem | None = right(log, body.model_copy(update={"known": now}))
        return found

    return wrong


PLANTS: Final = (
    Plant(
        "a declined region is waited for",
        cuts,
        "cannot_move",
        _waits_for_declined,
        "absence/a_declined_checkpoint",
    ),
    Plant(
        "a silent region is waited for",
        Activity,
        "silent",
        lambda right: lambda self, now: iter(()),
        "absence/a_dead_region_costs_no_wait",
    ),
    Plant(
        "a hung region is waited for in each cut",
        Candidate,
        "_forget_answers",
        _forgets_answers,
        "absence/a_hung_region",
    ),
    Plant(
        "a forced attempt gives nobody its time", cuts, "choose", _allows("forced"), "absence/a_hung_region"
    ),
    Plant(
        "nothing paces attempts that leave too many behind",
        cuts,
        "choose",
        _allows("ratio"),
        "absence/all_regions_absent_and_too_many",
    ),
    Plant(
        "every region has the same time",
        Candidate,
        "_timeout",
        lambda right: lambda self, name: self._settings.alignment_timeout,
        "absence/a_region_with_a_timeout_of_its_own",
    ),
    Plant(
        "a late take-over ends what works",
        registration,
        "_take_over_problem",
        lambda right: (
            lambda name, region, *rest: right(name, region.model_copy(update={"registered": -1}), *rest)
        ),
        "takeover/21_a_take_over_beside_a_frozen_process",
    ),
    Plant(
        "kinds of source offsets are not compared",
        registration,
        "_take_over_problem",
        lambda right: (
            lambda name, region, live, offset, body: right(
                name, region.model_copy(update={"position": None}), None, offset, body
            )
        ),
        "takeover/other_kinds_of_source_offsets",
    ),
    Plant(
        "a decline of an older process counts",
        replica,
        "failed",
        _any_process,
        "absence/a_decline_that_is_late",
    ),
    Plant(
        "ended incarnations are remembered for ever",
        Log,
        "forget_ended",
        lambda right: lambda self, moved: None,
        "registration/ended_incarnations_are_remembered",
    ),
    Plant(
        "a decision forgets ended incarnations before its outcome",
        cuts,
        "decide",
        _forgets_at_the_decision,
        "registration/ended_incarnations_are_remembered",
    ),
    Plant(
        "ended incarnations without a base are forgotten",
        Log,
        "remember_ended",
        _has_no_base,
        "registration/an_ended_incarnation_without_a_base",
    ),
    Plant(
        "heartbeats without effect count when they are read again",
        StreamMachine,
        "step",
        _reads_again,
        "attacks/a_heartbeat_of_an_older_process_is_read_again",
    ),
    Plant(
        "files of regions that cannot move make a cut due",
        cuts,
        "next_moves",
        _of_every_region,
        "attacks/files_of_an_excluded_region_make_no_cut_due",
    ),
    Plant(
        "a successor announces the end of each stall",
        Outbox,
        "stalls",
        _ends_at_once,
        "attacks/a_refused_publication_lasts_over_a_restart",
    ),
    Plant(
        "a further table is no evidence",
        Group,
        "_evidence",
        lambda right: lambda self, state, known, asked: Evidence(False),
        "tables/3_the_anchor_was_rolled_back",
    ),
    Plant(
        "a table that contradicts the log is no evidence",
        Group,
        "_evidence",
        lambda right: lambda self, *given: right(self, *given)._replace(contradiction=None),
        "tables/a_table_that_contradicts",
    ),
    Plant(
        "a revert asks the anchor alone",
        Group,
        "ask_all",
        _asks_nobody,
        "tables/3_a_revert_of_a_decision_that_a_table_has",
    ),
    Plant(
        "an order takes an answer from before it",
        Group,
        "ask_all",
        _tells_of_all,
        "tables/3_an_order_while_the_question_is_out",
    ),
    Plant(
        "an outcome does not wait for a further table",
        Committing,
        "apart",
        lambda right: property(lambda self: []),
        "tables/4_a_further_table_was_rolled_back",
    ),
    Plant(
        "tables that lack a decision get it though the anchor lost it",
        Group,
        "_has",
        lambda right: lambda self, request, anchor: True,
        "tables/2_a_zombie_completes_what_was_reverted",
    ),
    Plant(
        "files of an unknown table are passed over",
        PendingCheckpoints,
        "add_part",
        _drops_unknown,
        "tables/6_a_table_that_is_unknown",
    ),
    Plant(
        "a statement about a further table counts however late it is",
        commands,
        "_pause",
        _counts_late,
        "tables/a_statement_that_comes_late",
    ),
    Plant(
        "a cut takes files of an unknown table",
        Log,
        "known",
        lambda right: lambda self, name: self.sealed(name),
        "tables/6_a_table_that_is_left_out",
    ),
    Plant(
        "the vector has touched tables alone",
        Group,
        "_publish",
        lambda right: (
            lambda self, request: right(
                self, replace(request, vector={name: request.vector[name] for name in request.tables})
            )
        ),
        "tables/one_decision_in_three_tables",
    ),
    Plant(
        "trouble of a further table is not seen before a decision",
        Group,
        "trouble",
        lambda right: lambda self, tables: {},
        "tables/15_a_table_is_made_again",
    ),
    Plant(
        "a table that was made again takes files",
        Group,
        "_right",
        lambda right: lambda self, known, state: state,
        "tables/15_a_table_is_made_again",
    ),
    Plant(
        "a statement about a table does not reach a decided cut",
        LogState,
        "registered",
        lambda right: lambda self, name, known: known if right(self, name, known) else None,
        "tables/a_statement_about_a_decided_cut",
    ),
    Plant(
        "a decision is published where its table was",
        LogState,
        "registered",
        lambda right: lambda self, name, known: None,
        "tables/14_a_table_is_renamed",
    ),
    Plant(
        "a successor forgets which regions are excluded",
        Candidate,
        "__init__",
        _forgets_exclusions,
        "attacks/stalls_of_regions_last_over_a_restart",
    ),
    Plant(
        "a late answer counts for the decision that is next by now",
        StreamMachine,
        "_head_asked",
        _counts_for_the_next,
        "interleavings/29_a_decision_while_the_head_is_asked",
    ),
    Plant(
        "the number of a commit is compared, and its digest is not",
        TableProgress,
        "lost_decision",
        lambda right: lambda self, state, found: right(self, state, replace(found, digest="")),
        "interleavings/30_a_late_outcome_of_what_a_rollback_took",
    ),
)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_a_planted_defect_is_seen(plant: Plant) -> None:
    expected = (CASES / f"{plant.case}.txt").read_text(encoding="utf-8")
    assert Script().run(expected) == expected
    with plant.planted():
        assert _told(expected) != expected


def _told(case: str) -> str:
    """Run a case; a coordinator that does not come to rest, or a doubled file, is another outcome."""
    try:
        return Script().run(case)
    except (RuntimeError, AssertionError) as error:
        return str(error)
