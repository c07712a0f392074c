"""`sluicegate replay`: compare a stream's table with its log, repair it, or build a fresh one."""

from collections.abc import Coroutine, Mapping
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
from sluicegate.coordinator.replay.tables import connect, named_tables, open_table
from sluicegate.coordinator.replay.verify import Verdict
from sluicegate.coordinator.replay.verify import verify as verify_tables
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


def verdicts_output(
    stream: str, found: Mapping[str, Verdict | ReplayRefused], opened: Mapping[str, Opened]
) -> Output:
    """Format the result of a verification, by name of the table: the anchor is the first one, if it is there.

    `opened`: the files of the newest snapshot of each.
    """
    done = next(each.done for each in found.values() if isinstance(each, Verdict))
    lines, values = _range(stream, done), _values(stream, done)
    further: dict[str, Any] = {}
    different = False
    for name, each in found.items():
        if isinstance(each, Verdict):
            shown = _verdict_output(stream, each, opened[name])
        else:
            shown = Output([f"NOT COMPARED: {each}"], {"problem": str(each), "different": True}, True)
        lines += [f"table {name}:", *shown.lines] if name else shown.lines
        if name:
            further[name] = shown.values
        else:
            values |= shown.values
        different = different or shown.different
    if further:
        values |= {"tables": further, "different": different}
    return Output(lines, values, different)


def _verdict_output(stream: str, verdict: Verdict, opened: Opened) -> Output:
    """Format the result for one table."""
    counts, lines = verdict.counts, list[str]()
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
    found += [_foreign(each, further=bool(verdict.history.table)) for each in verdict.foreign]
    found += [_unjudged(each) for each in verdict.unjudged]
    lines += [f"  {line}" for line in _shortened(found)]
    if opened.files:
        lines.append(f"  opened {counted(opened.files, 'data file')} of the newest snapshot")
    if opened.problems:
        lines.append(f"FILES ARE MISSING, or damaged. {format_problems(opened)}")
    lines.append(_conclusion(stream, verdict, unproven=bool(limits)))
    values = {
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


def repaired_output(stream: str, repaired: Repaired, *, dry: bool, table: str = "") -> Output:
    """Format the commits that a repair made, or would make."""
    lines = _range(stream, repaired.done) if repaired.done else []
    did = "would be committed" if dry else "was committed"
    found = [f"{did}: {_decision(each)}" for each in repaired.committed]
    found += [f"left alone: {_decision(finding)}: {why}" for finding, why in repaired.left]
    lines += [f"  {line}" for line in _shortened(found)]
    if not repaired.committed:
        which = f"table {table}" if table else "table"
        lines.append(
            f"nothing is missing in the {which} of stream {stream} that could be committed from here"
        )
    for each in repaired.orders:
        if each.head is None:
            continue
        if each.table is not None:
            lines.append(
                f"the log named another snapshot of the table {each.table}. It now states that its newest "
                f"decision is {each.decision}, at snapshot {each.head.id}"
            )
            continue
        lines.append(
            "the log named a snapshot that the table does not have any more. It now states that decision "
            f"{each.decision} is absent up to snapshot {each.head.id}, so that a coordinator continues from "
            "there"
        )
    values = {
        **(_values(stream, repaired.done) if repaired.done else {}),
        "dry_run": dry,
        "committed": [_as_json(each) for each in repaired.committed],
        "left": [{**_as_json(finding), "reason": why} for finding, why in repaired.left],
        "head_stated": any(each.head is not None and each.table is None for each in repaired.orders),
        "tables_stated": [each.table for each in repaired.orders if each.table is not None],
    }
    return Output(lines, values)


def rebuilt_output(stream: str, table: str, made: Rebuilt, *, dry: bool, name: str = "") -> Output:
    """Format the commits of a rebuilt table, made or only planned. `name`: that of a further table."""
    did = "would be made" if dry else "made"
    lines = _range(stream, made.done) if made.done else []
    commits, files = counted(made.commits, "commit"), counted(made.files, "file")
    lines.append(f"  {did} in {table}: {commits} of {files} ({made.bytes:,} bytes)")
    if made.found:
        lines.append(f"  there already, from an earlier run: {counted(made.found, 'commit')}")
    if made.left:
        lines.append("  left out: the last decision, which an operator ordered to revert")
    if not dry and name:
        lines.append(_continued(stream, name, made))
    elif not dry:
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


def _continued(stream: str, name: str, made: Rebuilt) -> str:
    """Return the steps to continue a stream with the copy of a further table.

    Commits go to the former one while the policy names it. So the copy is complete only after that.
    """
    state = made.done.fold.replica.state if made.done is not None else None
    unresolved = state is not None and state.unresolved is not None and name in state.unresolved.tables
    if state is None or name in state.policy.tables or unresolved:
        return (
            f"The stream still commits to the former table {name}. To go on with this one, remove {name} "
            f"from [streams.{stream}.tables] of all coordinators, and send them SIGHUP. When `sluicegate "
            f"status --stream {stream}` shows no commit under way, repeat this command: it adds what is "
            "missing, and prints the next step"
        )
    named = (
        f"To go on with this table, name it as {name} in [streams.{stream}.tables] of all coordinators, and "
        "send them SIGHUP. Let the writers write to it, too. A region with files for the former one that are "
        f"not committed needs a reset: sluicegate region reset --stream {stream} --region REGION"
    )
    if made.head is None:
        return named
    return (
        f"{named}. When `sluicegate status --stream {stream}` shows it, state that it is right: sluicegate "
        f"stream resume --stream {stream} --table {name} --head {made.head.id}:{made.head.identity}"
    )


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
    name = verdict.history.table
    option = f" --table {name}" if name else ""
    missing = [
        each.status is CommitStatus.MISSING
        for each in verdict.findings
        if each.status is not CommitStatus.LEFT_OUT
    ]
    newest = verdict.done.last or verdict.done.fold.start.resolved
    if not missing and verdict.foreign and all(each.decision > newest for each in verdict.foreign):
        if name:
            return ". It has later decisions than the log: put topics back that have them"
        return (
            ". It has later decisions than the log: put topics back that have them. If there are none, "
            + fill(ADOPT, {"stream": stream})
        )
    if verdict.replaced:
        return ""
    if any(each.status is CommitStatus.OTHER for each in verdict.findings) and not name:
        return (
            ". Another deployment commits as the same commit user, or the topics were restored from an older "
            "copy and continued differently. To continue from the table, " + fill(ADOPT, {"stream": stream})
        )
    if not missing or not all(missing) or verdict.foreign or verdict.replaced:
        return ""
    lacking = [each for each in verdict.findings if each.status is CommitStatus.MISSING]
    if any(each.decision < (verdict.history.newest or 0) for each in lacking):
        # Commits are made in order, so `repair` cannot fill a hole.
        return (
            ". Later decisions are there: build a fresh table with sluicegate replay rebuild "
            f"--stream {stream}{option} --into TABLE"
        )
    return f". Commit the missing ones: sluicegate replay repair --stream {stream}{option}"


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
        case CommitStatus.MISPLACED:
            return f"OUT OF ORDER  {text}: snapshot {at} follows that of a later decision"
        case CommitStatus.LEFT_OUT:
            return f"left out: {text}: the settings did not name this table when it was committed"
        case CommitStatus.OTHER:
            return f"OTHER CONTENT  {text}: snapshot {at} has the digest {finding.digest or 'none'}"
        case CommitStatus.UNRESOLVED:
            return f"not in the table yet, and the log has no outcome: {text}"
        case CommitStatus.EXPIRED:
            return f"{text}: its snapshot has expired"
        case CommitStatus.UNKNOWN:
            return f"not provable: {text}"


def _foreign(foreign: Foreign, *, further: bool) -> str:
    no_such = "no such decision" + (" that touches this table" if further else "")
    return (
        f"FOREIGN  snapshot {foreign.snapshot.id} has the id of decision {foreign.decision} (digest "
        f"{foreign.digest or 'none'}), and the log has {no_such}"
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
table_option = click.option(
    "--table",
    metavar="NAME",
    default="",
    help="Name of a further table of the stream. By default, the stream's own table.",
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
@click.option(
    "--table",
    metavar="NAME",
    help="Compare this further table alone; an empty name is the stream's own one. By default, all.",
)
@forged_option
@json_option
def verify(
    settings: Settings,
    stream: str,
    table: str | None,
    start: Mark,
    stop: Mark,
    everything: bool,
    forged: tuple[str, ...],
    as_json: bool,
) -> None:
    """Compare the tables with the decisions of the log: missing, doubled and foreign commits.

    The comparison uses the ids and digests of decisions in the table's history. It ignores file paths, which
    compaction rewrites. It also opens the metadata of the newest snapshot and a sample of its data files. It
    may run beside a coordinator. Exit status 1 if the table differs from the log, if a file cannot be opened,
    or if records of the log are refused that may be yours: their key is missing here, or they have no
    signature.
    """

    async def work() -> Output:
        with progress_line(wanted=not as_json) as line:
            async with connect(settings, stream, line.show) as connected:
                tables, window = connected.tables(table), Window(start, stop)
                line.show("reading the history of the table")
                found = await verify_tables(
                    connected.log,
                    stream,
                    connected.start,
                    window,
                    tables,
                    everything=everything,
                    forged=forged,
                )
                line.show("opening the files of the newest snapshot")
                opened = {
                    each.name: await each.open_newest()
                    for each in tables
                    if isinstance(found[each.name], Verdict)
                }
        return verdicts_output(stream, found, opened)

    _print(settings, work(), as_json=as_json)


@replay.command()
@order_options
@table_option
@from_option
@to_option
@forged_option
@dry_option
@json_option
def repair(
    settings: Settings,
    stream: str,
    table: str,
    start: Mark,
    stop: Mark,
    forged: tuple[str, ...],
    dry: bool,
    as_json: bool,
) -> None:
    """Commit the decisions of the log that the table provably lacks, after it was rolled back or restored.

    They get the same ids and digests, so a coordinator finds them. Stop the coordinators first.

    A repair of the stream's own table also commits to the further tables that lack the decision. One of a
    further table completes decisions that the stream's own table has.
    """

    async def alone() -> None:
        await refuse_members(
            settings, "would commit beside this command; if it does not, `sluicegate status` shows why"
        )

    async def work() -> Output:
        with progress_line(wanted=not as_json) as line:
            async with connect(settings, stream, line.show) as connected:
                (log, begin, anchor, state), _ = connected, connected.tables(table)
                await require_verified(log, stream, begin, forged)
                if not dry:
                    await _refuse_other_group(settings, stream)
                    await alone()
                    await note_order(settings, stream)
                # Checked again before each write: a coordinator may have started in the meantime.
                repairing = Repair(
                    log, stream, anchor, alone, dry=dry, tables=named_tables(state, table), name=table
                )
                repaired = await repairing.run(begin, Window(start, stop), line.note)
                if repaired.orders:
                    await alone()
                for each in repaired.orders:
                    await log.append(order_envelope(stream), each, current_order())
        return repaired_output(stream, repaired, dry=dry, table=table)

    _print(settings, work(), as_json=as_json)


@replay.command()
@order_options
@table_option
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
    table: str,
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

    It makes one table: that of the stream, or with --table a further one. The stream's own tables are not
    changed. The same command continues a run that was interrupted.
    """

    async def work() -> Output:
        secrets = {name: SecretStr(value) for name, value in options.items()}
        with progress_line(wanted=not as_json) as line:
            async with connect(settings, stream, line.show) as connected:
                log, begin, source = connected.log, connected.start, connected.tables(table)[0]
                own = source.settings
                # The new table is alone, also if it is that of a stream with further ones.
                changes = {
                    "table": into,
                    "tables": {},
                    "allowed_locations": (),
                    "options": own.options | secrets,
                }
                await require_verified(log, stream, begin, forged)
                if not dry:
                    await note_order(settings, stream, f"into {into}")
                with open_table(own.model_copy(update=changes), stream) as target:
                    rebuilding = Rebuild(
                        log,
                        stream,
                        source,
                        target,
                        dry=dry,
                        incomplete=incomplete,
                        lost=lost,
                        state=connected.state,
                    )
                    made = await rebuilding.run(begin, Window(parse_mark("earliest"), stop))
        return rebuilt_output(stream, into, made, dry=dry, name=table)

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
