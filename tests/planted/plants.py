"""Defects outside of the core, one line each: a text of a function, and the wrong text in its place.

A seam is a function by its object, not by its file, so a move of the function needs no change here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from sluicegate.cli import options, status
from sluicegate.cli import wait as cli_wait
from sluicegate.coordinator.core import cuts, replica
from sluicegate.coordinator.core.log import PendingCheckpoints
from sluicegate.coordinator.core.proposal import Candidate
from sluicegate.coordinator.listeners.records import ListenerRecord
from sluicegate.coordinator.listeners.worker import Worker
from sluicegate.coordinator.replay import decisions, reading
from sluicegate.coordinator.replay.decisions import Comparison
from sluicegate.coordinator.replay.orphans import Search
from sluicegate.coordinator.replay.repair import Repair
from sluicegate.coordinator.stream import continuity, files, outcomes
from sluicegate.coordinator.stream.letters import Letterbox
from sluicegate.coordinator.stream.outcomes import Outcomes
from sluicegate.coordinator.stream.partition import AppendTimes, PartitionRunner, UnroutableEvents
from sluicegate.coordinator.stream.prechecks import EarlyChecks, Passed
from sluicegate.coordinator.stream.rate_limit import Pace
from sluicegate.coordinator.stream.reload import Changes
from sluicegate.coordinator.stream.runner import StreamRunner
from sluicegate.events import codec, models
from sluicegate.kafka.bodies import Bodies, Budget
from sluicegate.kafka.internals import _choose_authenticator
from sluicegate.lakes import committer, history, sequence
from sluicegate.lakes.delta import versions
from sluicegate.lakes.delta.committer import DeltaCommitter
from sluicegate.lakes.iceberg import vended
from sluicegate.lakes.iceberg.maintenance import References as IcebergReferences
from sluicegate.lakes.iceberg.rest import RestTransactions
from sluicegate.lakes.iceberg.sql import SqlCatalog, SqlTransactions
from sluicegate.lakes.paimon import entries, upserts
from sluicegate.lakes.paimon.maintenance import References as PaimonReferences
from sluicegate.lakes.storage_hdfs import HdfsStorage
from sluicegate.lakes.threads import CommitThreads
from sluicegate.listeners import tags
from sluicegate.listeners.mark_done import policy as mark_policy
from sluicegate.state_store.memory import MemoryStateStore
from sluicegate.writer_hooks import driver_state, numbering
from sluicegate.writer_hooks.driver import DriverHeartbeats, RegionDriver
from sluicegate.writer_hooks.driver_state import DriverState
from sluicegate.writer_hooks.options import Backpressure, Repetition
from sluicegate.writer_hooks.spark import batch, incarnation
from sluicegate.writer_hooks.spark.checkpoint import CheckpointLocation
from sluicegate.writer_hooks.spark.heartbeats import Run
from sluicegate.writer_hooks.spark.registry import Registry
from sluicegate.writer_hooks.upload import uploader
from sluicegate.writer_hooks.upload.overdue import OverdueUploads
from sluicegate.writer_hooks.upload.spool import Spool

DELIVERY: Final = "tests/coordinator/stream/test_delivery.py"
OFFSETS: Final = "tests/coordinator/stream/test_offsets.py"
CONTINUITY: Final = "tests/coordinator/stream/test_continuity.py"
EARLY: Final = "tests/coordinator/stream/test_early_checks.py"
OUTCOMES: Final = "tests/coordinator/stream/test_outcomes.py"
GOLDEN: Final = "tests/golden/test_cases.py"
CARRYING: Final = "tests/events/test_completions.py"
CONTENT: Final[Any] = models.CheckpointCompleted._check_content
TEXTS: Final = "tests/golden/test_texts.py"
LISTENER: Final = "tests/coordinator/listeners/test_worker.py"
MARKS: Final = "tests/listeners/mark_done/test_watermark.py tests/listeners/mark_done/test_times.py"
TAGS: Final = "tests/listeners/tags/test_periods.py"
PAUSES: Final = "tests/hooks/test_pauses.py"
ORPHANS: Final = "tests/replay/test_orphan_events.py"
SEARCH: Final = "tests/replay/test_orphan_search.py"
ICEBERG: Final = "tests/lakes/iceberg/test_maintenance.py"
GROUPS: Final = "tests/lakes/iceberg/test_group_steps.py"
PAIMON: Final = "tests/lakes/paimon/test_maintenance.py"
STORE: Final = "tests/contracts/state_store"
KEYS: Final = "tests/lakes/paimon/test_keys.py"
NUMBERS: Final = "tests/hooks/test_numbering.py"
HANGS: Final = "tests/lakes/test_hdfs.py::test_a_cluster_that_hangs_delays_a_call_until_its_deadline"
TOKENS: Final = "tests/kafka/test_tokens.py"


@dataclass(frozen=True)
class Plant:
    """A wrong line of one function, and the fast tests that see it."""

    name: str
    seam: Callable[..., Any] | property
    right: str
    """A part of the function's text that is there once."""
    wrong: str
    seen_by: str
    """Files, folders or names of tests, with spaces between them."""
    marks: str = "not servers and not long and not matrix"
    """Those of the tests that see it: fast ones, unless only a server shows the defect."""


_DELETED: Final = "if self._cluster.call(lambda client: client.delete(source)):"
_LISTED: Final = "home.listed = await home.table.call(home.finder.stated_files)"
_COMPARED: Final = "home.history = await home.table.comparison()"

PLANTS: Final = (
    # --- tables with keys --------------------------------------------------------------------------
    Plant(
        "checkpoints begin at the committed number alone",
        *(sequence.checkpoint_numbers, "Numbers(floor + place * STEP,", "Numbers(floor + STEP,", KEYS),
    ),
    Plant(
        "a task takes numbers that it does not have",
        *(sequence.Numbers.take, "if rows > self.end - self.first:", "if False:", KEYS),
    ),
    Plant(
        "numbers go on to the largest one",
        *(sequence.checkpoint_numbers, "if found.end > END:", "if False:", KEYS),
    ),
    Plant(
        "a delete is not counted",
        *(upserts.deletions, "pa.array(_DELETIONS, pa.int8())", "pa.array((1,), pa.int8())", KEYS),
    ),
    Plant(
        "an entry need not count its deletions",
        *(entries._Keys.problem, "if deleted is None:", "deleted = deleted or 0\n    if False:", KEYS),
    ),
    Plant(
        "two writers may share a bucket",
        *(
            numbering.require_one_writer,
            "if owner != each.attempt.writer:",
            "if False:",
            NUMBERS,
        ),
    ),
    Plant(
        "a restart computes its numbers again",
        *(incarnation._number, "if marker.floor is not None:", "if False:", NUMBERS),
    ),
    # --- keys of a catalog, and tokens --------------------------------------------------------------
    Plant(
        "keys that the store refused are kept",
        *(vended.VendedKeys.drop, "self._given = None", "pass", "tests/lakes/iceberg/test_vended.py"),
    ),
    Plant(
        "a refused token counts as accepted",
        *(_choose_authenticator, "if isinstance(source, TokenSource):", "if False:", TOKENS),
    ),
    Plant(
        "a put past its deadline counts as failed",
        *(
            HdfsStorage._rename,
            _DELETED,
            f"if failure.kind is Kind.LATE:\n            raise LakeUnavailable(attempt)\n        {_DELETED}",
            HANGS,
            "servers",
        ),
    ),
    # --- limit on texts ----------------------------------------------------------------------------
    Plant(
        "texts of any size enter a cut",
        *(cuts._too_large, "if _fits(texts):", "if True:", TEXTS),
    ),
    Plant(
        "one limit on texts for each region",
        *(cuts._too_large, "if total + growth[name] <= limit", "if growth[name] <= limit", TEXTS),
    ),
    Plant(
        "states of listeners do not add up",
        *(cuts._moved, "{**listeners, **body.listeners}", "body.listeners", TEXTS),
    ),
    Plant(
        "a decision of another coordinator may have texts of any size",
        *(cuts.problem_of, "if problem := texts_problem(log, moves):", "if problem := None:", TEXTS),
    ),
    # --- completions that carry files --------------------------------------------------------------
    Plant(
        "a completion may have files and name events",
        *(
            CONTENT,
            "self.files is not None and self.events",
            "False",
            CARRYING,
        ),
    ),
    Plant(
        "a completion without files and events is an empty checkpoint",
        *(CONTENT, "self.files is None and", "False and", CARRYING),
    ),
    Plant(
        "files of a completion need no writer",
        *(codec.read_completion, "if carries != (body.files is not None):", "if False:", CARRYING),
    ),
    Plant(
        "a completion with files names nothing",
        *(codec.read_completion, "(envelope.id,) if carries", "() if carries", CARRYING),
    ),
    Plant(
        "equal source offsets make another completion a replay",
        *(
            codec.read_completion,
            "default_source_digest(envelope.checkpoint, events, body.source_offsets)",
            "default_source_digest(envelope.checkpoint, (), body.source_offsets)",
            GOLDEN,
        ),
    ),
    Plant(
        "a predecessor of another incarnation needs no digest",
        *(codec._position_of, 'before.incarnation not in ("", incarnation)', "False", CARRYING),
    ),
    Plant(
        "an unknown number of files is 0",
        *(codec.read_record, "envelope.files == UNCOUNTED", "False", "tests/events/test_flaws.py"),
    ),
    Plant(
        "a completion with files adds none",
        *(replica.Replica.apply, "if record.envelope.writer and", "if False and", GOLDEN),
    ),
    Plant(
        "the files of a completion are not read again",
        *(replica._collect, "(envelope.writer and body is not None)", "False", GOLDEN),
    ),
    Plant(
        "the digest of an unknown predecessor is compared",
        *(PendingCheckpoints._is_tail, 'in ("", tail.digest)', "== tail.digest", GOLDEN),
    ),
    Plant(
        "a completion in memory is read as a files.written",
        *(Bodies.get, "CHECKPOINT_COMPLETED if completes else FILES_WRITTEN", "FILES_WRITTEN", EARLY),
    ),
    Plant(
        "files of a losing completion are no orphans",
        *(
            decisions.OrphanEvents.note,
            "if envelope.writer and",
            "if envelope.type is EventType.FILES_WRITTEN and",
            "tests/replay/test_orphan_events.py",
        ),
    ),
    # --- reading of partitions ------------------------------------------------------------------------
    Plant(
        "a joining stream does not hold the low-water mark",
        *(PartitionRunner.first_needed, ", *self.changes.joining.values()", "", DELIVERY),
    ),
    Plant(
        "a letter that waits does not hold the low-water mark",
        *(PartitionRunner.first_needed, "[] if first is None else [first]", "[]", OFFSETS),
    ),
    Plant(
        "the position of the partition is released",
        *(PartitionRunner._release, "offset := self.first_needed()", "offset := self.position", OFFSETS),
    ),
    Plant(
        "released offsets move back",
        *(PartitionRunner._release, "> (-1 if self._released is None else self._released)", "> -1", OFFSETS),
    ),
    Plant(
        "an own consumer does not go back to the position of the partition",
        *(Changes.catch_up, "consumer.seek(source, joint)", "pass", DELIVERY),
    ),
    Plant(
        "an own consumer delivers the record at the joint",
        *(Changes.catch_up, "if each.offset < end]", "if each.offset <= end]", DELIVERY),
    ),
    Plant(
        "a stream that a reload adds holds no offset while it is prepared",
        *(Changes._join, "self.joining[name] = min(runner.reads_from, host.position)", "pass", DELIVERY),
    ),
    Plant(
        "records before the position are taken",
        *(PartitionRunner.check_order, "records[0].offset < begin", "False", DELIVERY),
    ),
    Plant(
        "a stream takes a record twice",
        *(StreamRunner.deliver, "record.offset < self._next", "False", DELIVERY),
    ),
    Plant(
        "the low-water mark moves before the record is acknowledged",
        StreamRunner._follow_up,
        "await self._kafka.record(",
        "self.recorded_low_water = record.low_water; await self._kafka.record(",
        OFFSETS,
    ),
    Plant(
        "results count after the loss of the partition",
        *(StreamRunner.stop, "self._outcomes_count = grace > 0", "self._outcomes_count = True", OFFSETS),
    ),
    Plant(
        "a publication that raised counts as not made",
        *(StreamRunner._attempt, "isinstance(effect, Publish)", "False", OFFSETS),
    ),
    Plant(
        "a flood counts in seconds",
        Pace.over,
        "* self.limit / 1000",
        "* self.limit",
        "tests/coordinator/stream/test_limits.py",
    ),
    Plant(
        "a stream with another commit user continues",
        *(continuity.other_user, "(None, commit_user)", "(record.commit_user, commit_user)", CONTINUITY),
    ),
    Plant(
        "a log that ends before the record continues it",
        *(continuity.discontinuity, "reached > log.end", "reached > log.end + 1", CONTINUITY),
    ),
    Plant(
        "a log without the needed events continues the record",
        *(continuity.discontinuity, "record.low_water < log.begin", "False", CONTINUITY),
    ),
    Plant(
        "another event at the offset of the record continues it",
        *(continuity.discontinuity, "events[record.applied] != known", "False", CONTINUITY),
    ),
    Plant(
        "registrations of former owners are refused again",
        *(
            UnroutableEvents.apply,
            "record.offset >= self._first and",
            "",
            "tests/coordinator/stream/test_unroutable.py",
        ),
    ),
    Plant(
        "an append time is that of the next record",
        *(
            AppendTimes.saw,
            "self._end = records[-1].offset + 1",
            "self._end = records[-1].offset",
            "tests/coordinator/stream/test_append_times.py",
        ),
    ),
    Plant(
        "a check of forgotten files is kept",
        *(EarlyChecks.keep, "self._bodies.size(offset) == 0", "False", EARLY),
    ),
    Plant(
        "a check holds under another policy",
        *(Passed.holds, "self.terms == terms and", "", EARLY),
    ),
    Plant(
        "one checkpoint is left out of a region that fits alone",
        *(
            files.fit,
            "len(sizes[name]) > 1",
            "len(sizes[name]) > 0",
            "tests/coordinator/stream/test_limits.py",
        ),
    ),
    Plant("a budget gives back nothing", Budget.give_back, "-= size", "-= 0", EARLY),
    Plant(
        "a cut takes the checkpoints that do not fit",
        *(cuts.next_moves, "if sealed and name in upto:", "if False:", GOLDEN),
    ),
    Plant(
        "events that were not checked count as checked",
        *(Candidate.checked, "each for each in offsets if each not in found.left", "offsets", GOLDEN),
    ),
    # --- letters ----------------------------------------------------------------------------------------
    Plant(
        "letters before the group's offset are sent again",
        *(Letterbox._put, "offset < self._first or", "", "tests/coordinator/test_letterbox.py"),
    ),
    Plant(
        "the last waiting letter is the first",
        *(Letterbox.first_waiting, "min(", "max(", "tests/coordinator/test_letterbox.py"),
    ),
    Plant(
        "the mark leaves out the first letter",
        *(Letterbox.note, "if offset >= first", "if offset > first", "tests/coordinator/test_letterbox.py"),
    ),
    # --- listeners --------------------------------------------------------------------------------------
    Plant(
        "a listener remembers one id of a decision",
        *(Worker._place, "(*(self.record.seen if same else ()), outcome.id)", "(outcome.id,)", LISTENER),
    ),
    Plant(
        "the place of a listener is not written without a state",
        *(Worker._finish, "bool(place) or bool(step.actions) or", "", LISTENER),
    ),
    Plant(
        "the last decision to skip is not skipped",
        *(Worker._handle, "<= self._settings.skip_through", "< self._settings.skip_through", LISTENER),
    ),
    Plant(
        "the id of the topic is not compared",
        *(Worker._next, 'piece.topic not in ("", self._topic)', "False", LISTENER),
    ),
    Plant(
        "a loss is named before the topic is read",
        *(Worker._refuse_loss, "await self._beginning(), None", "0, 0", LISTENER),
    ),
    Plant(
        "a refused action is not remembered",
        *(Worker._until_done, 'await self._write({"refused": result.reason', "({1: 1", LISTENER),
    ),
    Plant(
        "the record with more steps counts, not the one further on",
        ListenerRecord.rank,
        "(self.adoptions, decision, self.step, self.offset)",
        "(self.adoptions, self.step, decision, self.offset)",
        LISTENER,
    ),
    Plant(
        "outcomes owed are ignored",
        *(outcomes.decision_before, "decision - 1 for decision", "decision for decision", OUTCOMES),
    ),
    Plant(
        "a dropped outcome counts as held",
        *(Outcomes.announced, "self._held.popleft().offset + 1", "self._held.popleft().offset", OUTCOMES),
    ),
    Plant(
        "outcomes are announced before listeners have records",
        *(Outcomes.before_announcing, "await self._gate.wait()", "pass", OUTCOMES),
    ),
    Plant("a partition is done at its watermark", mark_policy._passed, "watermark >", "watermark >=", MARKS),
    Plant(
        "the watermark of marks falls",
        mark_policy.commit,
        "_highest(progress.watermark, seen.watermark)",
        "seen.watermark",
        MARKS,
    ),
    Plant(
        "two partitions have one name",
        mark_policy._escaped,
        '.replace("/", "%2F")',
        "",
        "tests/listeners/mark_done/test_names.py",
    ),
    Plant(
        "a late partition is marked at once",
        *(mark_policy._is_due, "now > each.last + terms.settle", "True", MARKS),
    ),
    Plant("a period that ends now has passed", tags.passed, "end < time", "end <= time", TAGS),
    Plant(
        "a tag of a period that had one is made again",
        *(tags.passed, "end <= after", "end < after", TAGS),
    ),
    # --- state store ------------------------------------------------------------------------------------
    Plant(
        "a view is replaced whatever its time is",
        *(MemoryStateStore.replace, "await self.stamp(view.stream) != stamp", "False", STORE),
    ),
    # --- lakes ------------------------------------------------------------------------------------------
    Plant(
        "Delta's own version is found on another head",
        *(
            DeltaCommitter._ours,
            "before.ref != request.head",
            "False",
            "tests/lakes/delta/test_own_versions.py",
        ),
    ),
    Plant(
        "the mark of a cloned Delta table counts",
        versions.mark_of,
        "and table == number_of(state.metadata.id)",
        "",
        "tests/lakes/delta/test_marks.py",
    ),
    Plant(
        "a mark above its table counts",
        *(
            versions.mark_of,
            "version > state.version",
            "False",
            "tests/lakes/delta/test_marks.py",
        ),
    ),
    Plant(
        "a marker counts although its snapshot contradicts it",
        *(
            history._standing,
            "made == (commit_user, marker.decision, marker.digest)",
            "True",
            "tests/lakes/test_history.py",
        ),
    ),
    Plant(
        "the marker alone proves presence",
        *(
            history.look_for,
            "    if walk.made is not None and walk.made[0] > asked[0]:",
            "    if marker is not None and (marker.decision, marker.digest) == asked:\n"
            "        return Found(marker.snapshot)\n"
            "    if walk.made is not None and walk.made[0] > asked[0]:",
            "tests/contracts/lakes/test_rollbacks.py tests/contracts/lakes/test_markers.py",
        ),
    ),
    Plant(
        "a marker in the place of a commit that was rolled back proves absence",
        *(history._replaces, "made.id >= recorded.id", "False", GOLDEN),
    ),
    Plant(
        "a foreign id of the recorded head counts",
        *(history._walk, "(past.digest or past.ref != recorded)", "True", "tests/lakes/test_history.py"),
    ),
    Plant(
        "files of two events may be one",
        committer.UniquePaths.add_checked,
        "self._met |= digests",
        "pass",
        "tests/lakes/test_duplicate_files.py",
    ),
    Plant(
        "stuck threads are not replaced",
        *(CommitThreads.relieve, "started > late", "True", "tests/lakes/test_threads.py"),
    ),
    # --- replay -----------------------------------------------------------------------------------------
    Plant(
        "repair fills a hole",
        *(Repair._commit, "decision.id != self._last + 1", "False", "tests/replay/test_repair.py"),
    ),
    Plant(
        "repair commits before a newer decision",
        *(Repair._is_missing, "finding.decision < history.newest", "False", "tests/replay/test_repair.py"),
    ),
    Plant(
        "the grace period counts from the event",
        *(
            Search._orphans,
            "now - orphan.since",
            "now - orphan.arrival.time",
            "tests/replay/test_orphan_search.py",
        ),
    ),
    Plant(
        "an orphan's path that was named since is deleted",
        *(Search._still, "file.path not in self._named_since and", "", "tests/replay/test_orphan_search.py"),
    ),
    Plant(
        "a listener takes the decisions after an adoption for known ones",
        *(Worker._adopt, "if ahead else {}", "if False else {}", LISTENER),
    ),
    Plant(
        "a file of a live incarnation goes",
        *(decisions.OrphanEvents.judge, "life in ended and not live", "True", ORPHANS),
    ),
    Plant(
        "a file of a batch that runs for days goes",
        *(
            decisions.OrphanEvents.judge,
            "reaches(_committed(state, name), life, checkpoint)",
            "True",
            ORPHANS,
        ),
    ),
    Plant(
        "a file whose event may be deleted goes",
        *(
            decisions.OrphanEvents.judge,
            "reaches(_committed(self._start, name), life, checkpoint)",
            "False",
            ORPHANS,
        ),
    ),
    Plant(
        "one incarnation that has ended is enough",
        *(decisions.OrphanEvents.judge, 'may still be committed", None)', 'may be committed", 1)', ORPHANS),
    ),
    Plant(
        "a name that was named since is deleted",
        *(
            Search._still,
            "_name(file.path) not in map(_name, self._named_since)",
            "True",
            SEARCH,
        ),
    ),
    Plant(
        "a draft of an open decision goes",
        *(decisions.OrphanEvents.judge_draft, "_since(self._outcomes, decision)", "0", ORPHANS),
    ),
    Plant(
        "a draft of another stream goes",
        *(Search._judged_draft, "not owner.startswith(draft.owner)", "False", SEARCH),
    ),
    Plant(
        "a draft that the log names as published goes",
        *(Search._judged_draft, "draft.publication in home.published", "False", SEARCH),
    ),
    Plant(
        "a draft that a repair makes meanwhile goes",
        Search._begin,
        f"{_LISTED}\n    {_COMPARED}",
        f"{_COMPARED}\n    {_LISTED}",
        SEARCH,
    ),
    Plant(
        "a draft that metadata of Iceberg names goes",
        *(IcebergReferences._note_texts, "self._names.intersection(_NAMES.findall(text))", "set()", ICEBERG),
    ),
    Plant(
        "published metadata that has left the log goes",
        *(IcebergReferences.refresh, "if stated.publication in named", "if False", ICEBERG),
    ),
    Plant(
        "a list of manifests that a snapshot names goes",
        *(PaimonReferences._read, "} & self._names", "} & set()", PAIMON),
    ),
    Plant(
        "a manifest that a list names goes",
        *(PaimonReferences._read_manifest, "{name} & self._names", "set()", PAIMON),
    ),
    Plant(
        "a table that was rolled back has orphans",
        *(Search._judged, "home.unproven is not None", "False", SEARCH),
    ),
    Plant(
        "an incarnation that a withdrawal can bring back has orphans",
        *(decisions._ended_for_good, "[state.former,", "[None,", "tests/replay/test_orphan_events.py"),
    ),
    Plant(
        "checkpoints of the open decision are committed",
        decisions._committed,
        "state.unresolved.before.regions if state.unresolved is not None else state.regions",
        "state.regions",
        "tests/replay/test_orphan_events.py",
    ),
    Plant(
        "a commit without a digest orders decisions",
        *(
            Comparison.__init__,
            "any(past.digest for past in held)",
            "True",
            "tests/replay/test_comparison.py",
        ),
    ),
    Plant(
        "a decision that is there twice is there",
        *(Comparison.judge, "len(found) > 1", "len(found) > 2", "tests/replay/test_comparison.py"),
    ),
    Plant(
        "a reverted decision ends a window",
        *(reading.Window.place, "not logged.reverted and", "", "tests/replay/test_window.py"),
    ),
    # --- writer hooks -----------------------------------------------------------------------------------
    Plant(
        "two results of one writer are completed",
        *(driver_state.completion, "len({*names}) < len(names)", "False", "tests/hooks/test_plain_driver.py"),
    ),
    Plant(
        "the digest of a completion leaves out its events",
        *(
            models.default_source_digest,
            "[checkpoint, list(events), source_offsets]",
            "[checkpoint, source_offsets]",
            "tests/hooks/test_plain_driver.py tests/events/test_completions.py",
        ),
    ),
    Plant(
        "one more checkpoint waits than is allowed",
        *(
            Backpressure.excess,
            "len(completed) >= self",
            "len(completed) > self",
            "tests/hooks/test_options.py",
        ),
    ),
    Plant(
        "pauses do not double",
        Repetition.is_due,
        "min(2 * self.pause",
        "min(self.pause",
        "tests/hooks/test_plain_driver.py",
    ),
    Plant(
        "a beginning takes back no idleness",
        *(DriverHeartbeats.begin, "if may_be_idle:", "if False:", "tests/hooks/test_plain_driver.py"),
    ),
    Plant(
        "a beginning that failed counts as begun",
        *(DriverHeartbeats.begin, "self._newest = before", "pass", "tests/hooks/test_plain_driver.py"),
    ),
    Plant(
        "idleness counts only once it is acknowledged",
        *(
            DriverHeartbeats._beat,
            "self._may_be_idle = self._may_be_idle or idle",
            "pass",
            "tests/hooks/test_plain_driver.py",
        ),
    ),
    Plant(
        "a commit of another digest counts",
        *(DriverState._read_commit, "found.position != at", "False", "tests/hooks/test_plain_driver.py"),
    ),
    Plant(
        "a doubt ends without an answer",
        DriverState._check,
        "self.doubt()\n        place = ",
        "place = ",
        "tests/hooks/test_plain_driver.py",
    ),
    Plant(
        "a commit takes later checkpoints along",
        *(
            DriverState._read_commit,
            "if each <= at.checkpoint",
            "if True",
            "tests/hooks/test_plain_driver.py",
        ),
    ),
    Plant(
        "a checkpoint with files in the spool is reported as lost",
        *(
            OverdueUploads.report,
            "min(in_spool, default=number + 1) <= number",
            "False",
            "tests/hooks/test_spool.py",
        ),
    ),
    Plant(
        "time in which Kafka was away counts",
        *(
            OverdueUploads.report,
            "_OUTAGE < now - reported < math.inf",
            "False",
            "tests/hooks/test_spool.py",
        ),
    ),
    Plant(
        "the files of an attempt go before its entry",
        *(
            Spool._sweep_files,
            "if not any(attempt in entry for",
            "if not any(False for",
            "tests/hooks/test_spool.py",
        ),
    ),
    Plant(
        "a spool at its limit takes more",
        *(Spool.excess, "size < uploads", "size <= uploads", "tests/hooks/test_spool.py"),
    ),
    Plant(
        "a file is not compared after the user's function",
        uploader.send,
        "            require_whole(folder, file)\n        put",
        "        put",
        "tests/hooks/test_spool.py",
    ),
    Plant(
        "work that takes long is reported as lost",
        OverdueUploads.__init__,
        "if uploads.before_publish is None else math.inf",
        "",
        "tests/hooks/test_spool.py",
    ),
    Plant(
        "a checkpoint after a pause states nothing in plain Python",
        DriverHeartbeats.begin,
        "may_be_idle = self._may_be_idle\n",
        "may_be_idle = False\n",
        "tests/hooks/test_plain_driver.py",
    ),
    Plant(
        "a driver of plain Python hears of no fallback",
        DriverState.apply,
        "outcome = self._progress.apply(body)",
        "outcome = None",
        "tests/hooks/test_plain_driver.py",
    ),
    Plant(
        "a completion is noted after its publication",
        RegionDriver._complete,
        "self._state.add_completed(CommittedCheckpoint(number, parsed_offsets(offsets), position))\n"
        "    self._publish(event, held, number, is_repeated=is_repeated)",
        "self._publish(event, held, number, is_repeated=is_repeated)\n"
        "    self._state.add_completed(CommittedCheckpoint(number, parsed_offsets(offsets), position))",
        "tests/hooks/test_plain_driver.py",
    ),
    Plant(
        "a query is idle while a batch runs",
        *(CheckpointLocation.pause, " if self.newest_planned() == completed else None", "", PAUSES),
    ),
    Plant(
        "a batch after a pause states nothing",
        *(batch._publish_beginning, "if not registry.may_be_idle(key):", "if True:", PAUSES),
    ),
    Plant(
        "an idle heartbeat is not noted",
        *(Registry.record_idle, "self._path(query, _IDLE).touch()", "pass", PAUSES),
    ),
    Plant(
        "a query whose batch waits for its commit asks nothing",
        *(
            Run.is_question_due,
            "return self.question.is_due(now)",
            "return False",
            "tests/hooks/test_runs.py",
        ),
    ),
    # --- cli --------------------------------------------------------------------------------------------
    Plant(
        "a time without a zone is local",
        cli_wait._parse_time,
        ".replace(tzinfo=UTC)",
        "",
        "tests/cli/test_errors.py",
    ),
    Plant(
        "an unknown stream is taken",
        options.require_stream,
        "if stream not in",
        "if stream in",
        "tests/cli/test_errors.py",
    ),
    Plant(
        "ages are of the future",
        status._ago,
        "now - millis",
        "millis - now",
        "tests/cli/test_errors.py",
    ),
    # --- transactions over several tables ----------------------------------------------------------
    Plant(
        "an answer of success is believed",
        *(RestTransactions.commit_all, "if all(there.values()) and code < _BAD_REQUEST:"),
        *("if code < _BAD_REQUEST:", GROUPS),
    ),
    Plant(
        "files of a refused request are deleted at once",
        *(RestTransactions.commit_all, "table._discard_refused(table._known)"),
        *("table._files.discard(each.composed.draft.files)", GROUPS),
    ),
    Plant(
        "files of a refused request are written again",
        *(RestTransactions._write, "refused.change is not each.composed.change", "True", GROUPS),
    ),
    Plant(
        "entries change in the order of the policy",
        *(
            SqlCatalog.swap_all,
            "updates.sort(",
            "list[dict[str, str]]().sort(",
        ),
        GROUPS,
    ),
    Plant(
        "a conflict discards the files of other tables",
        *(SqlTransactions.commit_all, "if not member.name or location != change[1].base.location"),
        *("if True", GROUPS),
    ),
)
