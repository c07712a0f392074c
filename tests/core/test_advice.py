"""Each sentence of the core that advises something is followed, to the commit, in a case that is named here.

A new sentence in the core fails here until it stands in the table with a case of tests/golden/cases/advice,
or among the facts, which advise nothing.
"""

import pytest

from tests.repository.advice import ROOT, problem, sentences, stale, unplayed

CORE = ROOT / "coordinator" / "core"
LABELS = "transitions.py"
"""Names of states and events, which no operator reads."""

PLAYED = {
    # refusals.py
    "name the newest of them only": "one_own_parent",
    "leave it out of the option `parents`": "no_own_parent",
    "If its checkpoint location is from another stream": "no_own_parent_from_another_stream",
    "is unknown in this stream; correct the option `parents`": "unknown_parent_region",
    "Name what they went on from, and let the source start there": "displaced_parent",
    "is unknown or was itself replaced; name one that region": "unknown_parent_lineage",
    "Stop the query, put the newer location back, and start it again": "older_location_put_back",
    "that start is refused, and the refusal names the command to accept it": "older_location_lost",
    "Rows that it numbers anew would be taken for those in the table": "older_location_lost",
    "with other source data than its checkpoint location has": "other_content_put_back",
    "set the query back to its committed checkpoint: sluicegate rewind": "other_content_pending",
    "nothing of it is committed yet": "other_content_nothing_committed",
    "Leave the region out of the assignment": "passed_on_left_out",
    "or begin a new lineage of it there": "passed_on_new_lineage",
    "is committed, sluicegate rewind": "passed_on_new_lineage",
    "start the query in an empty checkpoint location, with the option parents": "passed_on_behind_a_rewind",
    "list every region of the stream in the option `regions`": "not_in_its_own",
    "is older than the stream's assignment": "older_assignment",
    "change the regions, raise the assignment's number for all queries": "other_regions",
    "and let one be committed before assignment": "too_deep_committed_first",
    "raise max_consecutive_fallbacks": "too_deep_higher_maximum",
    "is the right one, start it from its own checkpoint location": "replaced",
    "else stop that one, and start this one in an empty location": (
        "tests/integration/test_second_query.py::"
        "test_a_running_query_fails_once_another_has_its_region::one query writes a region"
    ),
    "its option `parents` names who has that work now": "void_lineage",
    "Start the query in an empty checkpoint location: its option": "void_lineage_behind_a_rewind",
    "Put the old location back": "no_parent_old_location",
    "right after the committed rows, accept it": "no_parent_accepted",
    "another empty location, with a source that begins there": "no_parent_another_empty_location",
    "Stop the old query, and start the new one in another empty location": "moved_on_another_location",
    "begins there, accept it again": "moved_on_accepted_again",
    "is void; name that or earlier": "is_void",
    "as the parent, and let the source start there": "is_void_behind_a_rewind",
    "is held out of all commits; name one before it": "held_out_of_its_own",
    "leave it out of the parents, or its work would be read twice": "behind_another",
    "name the lineage instead with which it goes on": "behind_another_that_kept_a_part",
    "was ended elsewhere than at": "ended_elsewhere_same_checkpoint",
    "or raise the assignment's number": "ended_elsewhere_higher_number",
    "others of this assignment build on": "ended_elsewhere_behind_a_rewind",
    "begin a new lineage of region": "goes_on_new_lineage_first",
    "or leave the region out": "goes_on_left_out",
    "set the query back to the committed one instead, and name that as the parent": "beyond_its_own",
    "which only a new assignment can take over; raise the assignment's number": "only_anew",
    ", or name region": "beyond_of_another",
    # book.py
    "rewind the region to its committed checkpoint, as a new lineage": "fault_lost",
    "(under a higher assignment, if other regions build on it)": "fault_that_others_build_on",
    "it was completed again for another source range": "fault_completed_again",
    "put the newer one back first": "fault_ended_before_the_table",
    "it is in the table, but the query ended at": "fault_ended_before_the_table",
    "its completion names two attempts of the writer": "fault_two_attempts",
    "it names no predecessor, but": "fault_no_predecessor",
    "is not between": "fault_predecessor_elsewhere",
    "send it again, mended": "unreadable_completion_sent_again",
    "its completion cannot be read, and none that can has come for long": "unreadable_completion_given_up",
    "was held out when decision": "held_out_by_a_void",
    # overdue.py
    "If the query wrote to another stream before": "lacks_predecessor_of_another_stream",
    "Correct the writer, and": "event_elsewhere",
    "go on in a new stream with a commit_user of its own, in empty checkpoint locations, with sources that": (
        "tests/integration/test_new_stream.py::"
        "test_a_stream_whose_events_were_deleted_goes_on_in_a_new_one::"
        "go on in a new stream with a commit_user of its own, in empty checkpoint locations"
    ),
    "Kafka does not shrink one": (
        "tests/integration/test_stalls.py::test_a_topic_that_has_grown_is_noticed::the events topic has grown"
    ),
    # commit.py, standing.py, machine.py, orders.py
    "Put the table's snapshots back": "unproven_decision_put_back",
    "it cannot be proven whether decision": "unproven_decision_put_back",
    "it cannot be proven what is in the table": "unproven_idle_put_back",
    "is not the one that was recorded": "unproven_idle_put_back",
    "commit anew what it lost: sluicegate replay --stream {} --commit-missing": (
        "tests/integration/test_replay.py::"
        "test_what_a_rolled_back_table_lacks_is_committed_again_and_the_stream_goes_on::--commit-missing"
    ),
    "Put the old table back": "replaced_while_idle_put_back",
    " was to be committed": "replaced_under_a_decision_put_back",
    "make a fresh one of what the log decided: sluicegate replay --stream {} --into TABLE": (
        "tests/integration/test_replay.py::test_a_fresh_table_has_the_same_cuts::--into"
    ),
    "and a commit there has the id": "later_id_without_our_digest",
    "the topics were made anew, or another deployment": "ahead_while_deciding",
    "but the log ends at decision": "ahead_at_the_start",
    "is in the table with other content": "other_content_of_a_decision",
    "Mend that, and it goes on by itself": "refused_and_mended",
    "or give the decision up: sluicegate void": "held_out_by_a_void",
    "go on with: sluicegate resume --stream": "paused",
    # retries.py
    "the table cannot be inspected": "away_inspect",
    "See that the service can read the table": "away_check",
    "the table cannot be asked for a decision": "away_ask",
    "Look at the free space and the inodes": "away_publish",
    "the end of the log cannot be fetched": "away_end",
    "nothing can be appended to the log": "away_append",
    "See that Kafka answers": "away_append",
    "old events cannot be appended again": "away_carry",
    "the state record cannot be written": "away_record",
    "It is tried again, and the stream goes on by itself": "away_announce",
}
"""A part of each sentence, and the case that prints it and follows it."""

VARIANTS = {
    "is committed with other source data": "other_content_committed",
    "goes on from checkpoint 0 of lineage q.0 of region r1, but": "no_parent_of_an_heir",
    "cannot be read (no JSON)": "unreadable_completion_rewound",
    "and what lies before the new query's start would be lost": "moved_on_after_a_void",
    "else rewind the region": "lacks_predecessor_rewound",
    "goes on from, is held out of all commits": "held_out_below",
    "another checkpoint already follows": "fault_two_followers",
    "files cannot be checked": "away_check",
    "a decision cannot be published": "away_publish",
    "notifications cannot be sent": "away_announce",
}
"""Sentences of several parts, as they are printed."""

FACTS = (
    # carrying.py
    "it was not carried whole",
    "nothing of this type is carried",
    # commit.py
    "{} is no answer to an ask",
    "{} is no outcome of a publication",
    # cuts.py
    "the cut leaves out a region",
    "the cut has a region without the checkpoints that it builds on",
    "the final mark is wrong",
    "the digest of the completions differs",
    "checkpoint {} of region {} is not sealed beyond its ref",
    "attempt {} at decision {} does not follow {}",
    "no full cut is forced",
    "the first cut of assignment {} is not full",
    "a cut with a final checkpoint is not full",
    "the cut is not full",
    "region {} fell back as often as it may: the cut is not full",
    # decisions.py
    "checkpoint {} of {} is not sealed",
    # gauges.py
    "region {} has never been opened",
    "region {} of assignment {} has never been opened",
    "region {}: checkpoint {} of lineage {} is completed, and {} of its events have not arrived ({})",
    "region {} has completed nothing since its last commit",
    # ignoring.py
    "below the low-water mark",
    # intake.py
    "no policy has a number beyond {}",
    # openings.py
    "the sink joins all writers by an exchange",
    "several writers of the sink fill one physical file",
    # overdue.py
    "before that lineage was opened",
    "for checkpoint {} of lineage {} of region {}",
    # refusals.py
    "what the new query reads of that again would be written twice",
    "what lies before the new query's start would be lost",
    ", which lineage {} of region {} goes on from,",
    "checkpoint {} of lineage {} of region {}",
)
"""The sentences, and parts of some, that advise nothing."""


def told() -> list[str]:
    return [text for path in sorted(CORE.glob("*.py")) if path.name != LABELS for text in sentences(path)]


def test_every_sentence_is_played_or_advises_nothing() -> None:
    assert unplayed(told(), PLAYED, FACTS) == []


@pytest.mark.parametrize(("part", "player"), [*PLAYED.items(), *VARIANTS.items()])
def test_its_case_prints_it_and_ends_with_a_commit(part: str, player: str) -> None:
    assert problem(part, player) is None


def test_every_entry_is_of_a_sentence() -> None:
    assert stale(told(), [*PLAYED, *FACTS]) == []


def test_a_sentence_that_nobody_plays_is_seen() -> None:
    text = "region {} was frozen; thaw it with care before you go on"
    assert unplayed([text], PLAYED, FACTS) == [text]
    assert stale(told(), ["a sentence that the core never had"]) != []
    assert problem("Put the old location back", "fault_lost") is not None
    assert problem("Put the old location back", "nowhere") is not None
