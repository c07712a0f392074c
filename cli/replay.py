"""`sluicegate replay`: compare a stream's table with its log, repair it, or build a fresh one."""

from collections.abc import Coroutine
from typing import Any, Final, NamedTuple

import click
from pydantic import SecretStr

from sluicegate.cli.errors import run_async
from sluicegate.cli.kafka import read_own_records, refuse_members
from sluicegate.cli.main import Commands
from sluicegate.cli.options import (
    absolute,
    current_order,
    forged_option,
    json_option,
    order_options,
    pairs_option,
    print_result,
    stream_options,
)
from sluicegate.cli.orders import note_order
from sluicegate.cli.terminal import progress_line
from sluicegate.coordinator.observe.messages import ADOPT, fill, format_problem, iso_time
from sluicegate.coordinator.replay.decisions import (
    CommitStatus,
    Finding,
    Foreign,
    ReplayRefused,
)
from sluicegate.coordinator.replay.log import order_envelope
from sluicegate.coordinator.replay.reading import (
    FORMS,
    Mark,
    Reading,
    Window,
    parse_mark,
    require_verified,
    way_out,
)
from sluicegate.coordinator.replay.rebuild import Rebuild, Rebuilt
from sluicegate.coordinator.replay.repair import Repair, Repaired
from sluicegate.coordinator.replay.tables import connect, open_table
from sluicegate.coordinator.replay.verify import Verdict
from sluicegate.coordinator.replay.verify import verify as verify_table
from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.stream.other_groups import OwnedElsewhere, refuse_other_groups
from sluicegate.events.models import SnapshotRef
from sluicegate.events.problems import CauseCode, Code, Problem
from sluicegate.lakes.capabilities import Opened
from sluicegate.lakes.maintenance import format_problems
from sluicegate.texts import counted

# Output of `sluicegate replay`, as lines and as JSON values.

MOST_LINES: Final = 50
"""Limit of lines in a list for people; --json prints all."""


class Output(NamedTuple):
    """Output of one command."""

    lines: list[str]
    values: dict[str, Any]
    """Values for --json."""
    different: bool = False
    """True if the table differs from the log or lacks files, or the log cannot be verified."""


def verdict_output(stream: str, verdict: Verdict, opened: Opened) -> Output:
    """Format the result of a verification. `opened`: the files of the newest snapshot."""
    counts, lines = verdict.counts, _range(stream, verdict.done)
    there = counts.get(CommitStatus.THERE, 0)
    lines.append(
        f"  {there} {'is in the table,' if there == 1 else 'are in the table, each'} once and with its digest"
    )
    limits = [*_limits(verdict), *map(str, verdict.unverified)]
    lines += [f"  {limit}" for limit in limits]
    if verdict.replaced:
        replaced = Problem(code=Code.TABLE_REPLACED, detail=verdict.history.history.identity)
        lines.append("  " + format_problem(replaced, stream))
    found = [_finding(finding) for finding in verdict.findings]
    found += [_foreign(each) for each in verdict.foreign]
    found += [_unjudged(each) for each in verdict.unjudged]
    lines += [f"  {line}" for line in _shortened(found)]
    if opened.files:
        lines.append(f"  opened {counted(opened.files, 'data file')} of the newest snapshot")
    if opened.problems:
        lines.append(f"FILES ARE MISSING, or damaged. {format_problems(opened)}")
    lines.append(_conclusion(stream, verdict, unproven=bool(limits)))
    values = {
        **_values(stream, verdict.done),
        "counts": {status.value: counts.get(status, 0) for status in CommitStatus},
        "findings": [_as_json(finding) for finding in verdict.findings],
        "foreign": [_foreign_as_json(each) for each in verdict.foreign],
        "unverified": [
            {
                "key": None if each.why is CauseCode.UNSIGNED else each.key,
                "cause": each.why.value,
                "records": each.records,
                "first_offset": each.first,
                "last_offset": each.last,
            }
            for each in verdict.unverified
        ],
        "unjudged": [_foreign_as_json(each) for each in verdict.unjudged],
        "history_whole": verdict.history.history.whole,
        "not_proven": limits,
        "table_replaced": verdict.replaced,
        "different": verdict.wrong,
        "files_opened": opened.files,
        "file_problems": list(opened.problems),
    }
    return Output(lines, values, verdict.wrong or bool(verdict.unverified or opened.problems))


def repaired_output(stream: str, repaired: Repaired, *, dry: bool) -> Output:
    """Format the commits that a repair made, or would make."""
    lines = _range(stream, repaired.done) if repaired.done else []
    did = "would be committed" if dry else "was committed"
    found = [f"{did}: {_decision(each)}" for each in repaired.committed]
    found += [f"left alone: {_decision(finding)}: {why}" for finding, why in repaired.left]
    lines += [f"  {line}" for line in _shortened(found)]
    if not repaired.committed:
        lines.append(f"nothing is missing in the table of stream {stream} that could be committed from here")
    if repaired.orders and (head := repaired.orders[0].head) is not None:
        lines.append(
            "the log named a snapshot that the table does not have any more. It now states that decision "
            f"{repaired.orders[0].decision} is absent up to snapshot {head.id}, so that a coordinator "
            "continues from there"
        )
    values = {
        **(_values(stream, repaired.done) if repaired.done else {}),
        "dry_run": dry,
        "committed": [_as_json(each) for each in repaired.committed],
        "left": [{**_as_json(finding), "reason": why} for finding, why in repaired.left],
        "head_stated": bool(repaired.orders),
    }
    return Output(lines, values)


def rebuilt_output(stream: str, table: str, made: Rebuilt, *, dry: bool) -> Output:
    """Format the commits of a rebuilt table, made or only planned."""
    did = "would be made" if dry else "made"
    lines = _range(stream, made.done) if made.done else []
    commits, files = counted(made.commits, "commit"), counted(made.files, "file")
    lines.append(f"  {did} in {table}: {commits} of {files} ({made.bytes:,} bytes)")
    if made.found:
        lines.append(f"  there already, from an earlier run: {counted(made.found, 'commit')}")
    if made.left:
        lines.append("  left out: the last decision, which an operator ordered to revert")
    if not dry:
        adopt = fill(ADOPT, {"stream": stream})
        lines.append(f"To go on with this table, set streams.{stream}.table to it. Then {adopt}")
    values = {
        **(_values(stream, made.done) if made.done else {}),
        "dry_run": dry,
        "table": table,
        "commits": made.commits,
        "files": made.files,
        "bytes": made.bytes,
        "found": made.found,
        "left": made.left,
    }
    return Output(lines, values)


def _range(stream: str, done: Reading) -> list[str]:
    """Format the range of decisions, and the limits of the log."""
    if done.decisions:
        which = f"{done.decisions} decision{'s' * (done.decisions > 1)}, {done.first} to {done.last}"
    else:
        which = "no decision in this range"
    start = done.fold.start
    lines = [f"stream {stream}: {which} (the log was read from offset {start.begin} to {done.end})"]
    if start.resolved:
        lines.append(f"  the log begins after decision {start.resolved}: those up to it are not judged again")
    if done.fold.problem is not None:
        lines.append(f"  later decisions are unknown. {format_problem(done.fold.problem, stream)}")
    return lines


def _values(stream: str, done: Reading) -> dict[str, Any]:
    problem = done.fold.problem
    return {
        "stream": stream,
        "read_from": done.fold.start.begin,
        "read_to": done.end,
        "first": done.first,
        "last": done.last,
        "decisions_judged": done.decisions,
        "not_judged": done.fold.start.resolved,
        "unreadable": format_problem(problem, stream) if problem is not None else None,
    }


def _limits(verdict: Verdict) -> list[str]:
    """Format the limits of the proof: snapshots of the table have expired."""
    expired, unknown = (verdict.counts.get(each, 0) for each in (CommitStatus.EXPIRED, CommitStatus.UNKNOWN))
    found: list[str] = []
    if expired:
        found.append(
            f"{expired} cannot be looked up: their snapshots have expired. They are in the table, because "
            f"decision {verdict.history.oldest} is, and each is published only on the one before it. Their "
            "digests cannot be proven any more"
        )
    if unknown:
        found.append(
            f"{unknown} cannot be looked up: all snapshots of this commit user have expired. Nothing proves "
            "that they are in the table, or that they are not"
        )
    return found


def _conclusion(stream: str, verdict: Verdict, *, unproven: bool) -> str:
    if verdict.unverified:
        also = "THE TABLE DIFFERS from the log, and " if verdict.wrong else ""
        return f"{also}THE LOG of stream {stream} IS NOT VERIFIED. {way_out(verdict.unverified)}"
    if not verdict.wrong:
        ground = "as far as it can be proven, " if unproven else ""
        if verdict.counts.get(CommitStatus.UNRESOLVED, 0):
            ground += "except for a decision whose commit is under way, "
        return f"{ground}the table has the decisions of the log of stream {stream}, and no others in its name"
    return f"THE TABLE DIFFERS from the log of stream {stream}{_way_out(stream, verdict)}"


def _way_out(stream: str, verdict: Verdict) -> str:
    """Return the advice if decisions are missing, or if the table alone has later ones."""
    missing = [each.status is CommitStatus.MISSING for each in verdict.findings]
    newest = verdict.done.last or verdict.done.fold.start.resolved
    if not missing and verdict.foreign and all(each.decision > newest for each in verdict.foreign):
        return (
            ". It has later decisions than the log: put topics back that have them. If there are none, "
            + fill(ADOPT, {"stream": stream})
        )
    if verdict.replaced:
        return ""
    if any(each.status is CommitStatus.OTHER for each in verdict.findings):
        return (
            ". Another deployment commits as the same commit user, or the topics were restored from an older "
            "copy and continued differently. To continue from the table, " + fill(ADOPT, {"stream": stream})
        )
    if not missing or not all(missing) or verdict.foreign or verdict.replaced:
        return ""
    if any(each.decision < (verdict.history.newest or 0) for each in verdict.findings):
        # Commits are made in order, so `repair` cannot fill a hole.
        return (
            ". Later decisions are there: build a fresh table with sluicegate replay rebuild "
            f"--stream {stream} --into TABLE"
        )
    return f". Commit the missing ones: sluicegate replay repair --stream {stream}"


def _finding(finding: Finding) -> str:
    at = ", ".join(str(each.id) for each in finding.snapshots)
    text = _decision(finding)
    match finding.status:
        case CommitStatus.THERE:
            return f"{text}: in the table as snapshot {at}"
        case CommitStatus.MISSING:
            return f"MISSING  {text}"
        case CommitStatus.DOUBLED:
            return f"DOUBLED  {text}: snapshots {at}"
        case CommitStatus.OTHER:
            return f"OTHER CONTENT  {text}: snapshot {at} has the digest {finding.digest or 'none'}"
        case CommitStatus.UNRESOLVED:
            return f"not in the table yet, and the log has no outcome: {text}"
        case CommitStatus.EXPIRED:
            return f"{text}: its snapshot has expired"
        case CommitStatus.UNKNOWN:
            return f"not provable: {text}"


def _foreign(foreign: Foreign) -> str:
    return (
        f"FOREIGN  snapshot {foreign.snapshot.id} has the id of decision {foreign.decision} (digest "
        f"{foreign.digest or 'none'}), and the log has no such decision"
    )


def _unjudged(foreign: Foreign) -> str:
    return (
        f"not judged: snapshot {foreign.snapshot.id} has the id of decision {foreign.decision}, which may be "
        "in a record that cannot be verified"
    )


def _foreign_as_json(foreign: Foreign) -> dict[str, Any]:
    return {"decision": foreign.decision, **_ref_as_json(foreign.snapshot), "digest": foreign.digest}


def _decision(finding: Finding) -> str:
    logged = finding.logged
    if logged is None:
        return f"decision {finding.decision}"
    made = logged.decision
    what = "reverted, an empty commit" if logged.reverted else counted(made.files, "file")
    time = iso_time(logged.time or None)
    when = f", {time}" if time else ""
    moves = "; ".join(
        f"{name} up to {to.checkpoint} of incarnation {to.incarnation}"
        for name, to in sorted(made.moves.items())
    )
    return f"decision {made.id} (offset {made.offset}{when}): {what}{f' of {moves}' if moves else ''}"


def _ref_as_json(ref: SnapshotRef) -> dict[str, Any]:
    """Return a snapshot; its identity is a text, as it may exceed a JSON number."""
    return {"snapshot": ref.id, "identity": ref.identity}


def _as_json(finding: Finding) -> dict[str, Any]:
    logged = finding.logged
    values: dict[str, Any] = {
        "decision": finding.decision,
        "status": finding.status.value,
        "snapshots": [_ref_as_json(each) for each in finding.snapshots],
        "digest": finding.digest,
    }
    if logged is not None:
        values |= {
            "offset": logged.decision.offset,
            "time": logged.time or None,
            "files": logged.decision.files,
            "reverted": logged.reverted,
            "cut": {name: at.model_dump() for name, at in logged.decision.cut.items()},
        }
    return values


def _shortened(lines: list[str]) -> list[str]:
    rest = len(lines) - MOST_LINES
    return [*lines[:MOST_LINES], f"... and {rest} more; --json prints all"] if rest > 0 else lines


DIFFERENT: Final = 1
"""Exit status if the table differs from the log."""


def _mark(_: click.Context, option: click.Parameter, value: str) -> Mark:
    """Parse a mark of the log. Raises BadParameter."""
    if value == {"start": "latest", "stop": "earliest"}.get(option.name or ""):
        raise click.BadParameter("this leaves nothing to replay")
    try:
        return parse_mark(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


from_option = click.option(
    "--from", "start", callback=_mark, default="earliest", show_default=True, help=f"First decision: {FORMS}."
)
to_option = click.option(
    "--to",
    "stop",
    callback=_mark,
    default="latest",
    show_default=True,
    help="Last decision, in the same forms.",
)
dry_option = click.option("--dry-run", "dry", is_flag=True, help="Only list what would be done.")


@click.group(cls=Commands)
def replay() -> None:
    """Read a stream's log again: compare its table with it, repair the table, or build a fresh one."""


@replay.command()
@stream_options
@from_option
@to_option
@click.option(
    "--all", "everything", is_flag=True, help="List every decision, also those that are in the table."
)
@forged_option
@json_option
def verify(
    settings: Settings,
    stream: str,
    start: Mark,
    stop: Mark,
    everything: bool,
    forged: tuple[str, ...],
    as_json: bool,
) -> None:
    """Compare the table with the decisions of the log: missing, doubled and foreign commits.

    The comparison uses the ids and digests of decisions in the table's history. It ignores file paths, which
    compaction rewrites. It also opens the metadata of the newest snapshot and a sample of its data files. It
    may run beside a coordinator. Exit status 1 if the table differs from the log, if a file cannot be opened,
    or if records of the log are refused that may be yours: their key is missing here, or they have no
    signature.
    """

    async def work() -> Output:
        with progress_line(wanted=not as_json) as line:
            async with connect(settings, stream) as (log, begin, table):
                window, shown = Window(start, stop), line.show
                verdict = await verify_table(
                    log, stream, begin, window, table, shown, everything=everything, forged=forged
                )
                opened = await table.open_newest()
        return verdict_output(stream, verdict, opened)

    _print(settings, work(), as_json=as_json)


@replay.command()
@order_options
@from_option
@to_option
@forged_option
@dry_option
@json_option
def repair(
    settings: Settings,
    stream: str,
    start: Mark,
    stop: Mark,
    forged: tuple[str, ...],
    dry: bool,
    as_json: bool,
) -> None:
    """Commit the decisions of the log that the table provably lacks, after it was rolled back or restored.

    They get the same ids and digests, so a coordinator finds them. Stop the coordinators first.
    """

    async def alone() -> None:
        await refuse_members(
            settings, "would commit beside this command; if it does not, `sluicegate status` shows why"
        )

    async def work() -> Output:
        with progress_line(wanted=not as_json) as line:
            async with connect(settings, stream) as (log, begin, table):
                await require_verified(log, stream, begin, forged)
                if not dry:
                    await _refuse_other_group(settings, stream)
                    await alone()
                    await note_order(settings, stream)
                # Checked again before each write: a coordinator may have started in the meantime.
                repairing = Repair(log, stream, table, alone, dry=dry)
                repaired = await repairing.run(begin, Window(start, stop), line.note, line.show)
                if repaired.orders:
                    await alone()
                for each in repaired.orders:
                    await log.append(order_envelope(stream), each, current_order())
        return repaired_output(stream, repaired, dry=dry)

    _print(settings, work(), as_json=as_json)


@replay.command()
@order_options
@click.option(
    "--into",
    required=True,
    metavar="TABLE",
    # Logs and records name the table by its location.
    callback=lambda _context, _option, value: absolute(value),
    help="Location of the new table.",
)
@pairs_option("Option of the new table in place of the stream's, such as identifier; repeat it for more.")
@to_option
@click.option("--incomplete", is_flag=True, help="Make a table also of a log whose beginning was deleted.")
@click.option(
    "--schema-from-target",
    "lost",
    is_flag=True,
    help="Your statement that TABLE, which exists and is empty, has the columns and the partitioning of the "
    "stream's table, whose metadata is lost. Each file is compared with it, as far as that is possible.",
)
@forged_option
@dry_option
@json_option
def rebuild(
    settings: Settings,
    stream: str,
    into: str,
    options: dict[str, str],
    stop: Mark,
    incomplete: bool,
    lost: bool,
    forged: tuple[str, ...],
    dry: bool,
    as_json: bool,
) -> None:
    """Build a fresh table from copies of the files, with the same commits in the same order.

    The stream's own table is not changed. The same command continues a run that was interrupted.
    """

    async def work() -> Output:
        own = settings.streams[stream]
        secrets = {name: SecretStr(value) for name, value in options.items()}
        changes = {"table": into, "allowed_locations": (), "options": own.options | secrets}
        place = own.model_copy(update=changes)
        with progress_line(wanted=not as_json) as line:
            async with connect(settings, stream) as (log, begin, table):
                await require_verified(log, stream, begin, forged)
                if not dry:
                    await note_order(settings, stream, f"into {into}")
                with open_table(place, stream) as target:
                    rebuilding = Rebuild(
                        log, stream, table, target, dry=dry, incomplete=incomplete, lost=lost
                    )
                    made = await rebuilding.run(begin, Window(parse_mark("earliest"), stop), line.show)
        return rebuilt_output(stream, into, made, dry=dry)

    _print(settings, work(), as_json=as_json)


def _print(settings: Settings, work: Coroutine[Any, Any, Output], *, as_json: bool) -> None:
    output = run_async(settings, work)
    print_result(output.values, output.lines, as_json=as_json)
    click.get_current_context().exit(DIFFERENT if output.different else 0)


async def _refuse_other_group(settings: Settings, stream: str) -> None:
    """Refuse a stream that another group serves. Raises ReplayRefused."""
    kafka, held = settings.kafka, await read_own_records(settings, stream)
    try:
        await refuse_other_groups(kafka.client_options(), kafka.group_id, {stream: held.group})
    except OwnedElsewhere as error:
        raise ReplayRefused(str(error)) from error
