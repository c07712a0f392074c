"""`sluicegate stream adopt`: continue a stream from its table, where its log does not lead to it."""

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

import click
from pydantic import ValidationError

from sluicegate.cli.coordinators import ask_coordinator
from sluicegate.cli.errors import UserError, run_async
from sluicegate.cli.kafka import StateKey, partition_count, read_own_records, refuse_members
from sluicegate.cli.options import forged_option, json_option, order_options, print_result
from sluicegate.cli.orders import note_order, require_permissions
from sluicegate.cli.recovery import remove_view, write_records
from sluicegate.cli.terminal import progress_line
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.listeners.records import ListenerRecord, encode, furthest
from sluicegate.coordinator.listeners.records import read_held as read_listener_records
from sluicegate.coordinator.listeners.worker import Bounds, CommitsReader
from sluicegate.coordinator.observe.messages import format_problem, iso_time
from sluicegate.coordinator.replay.adoption import (
    Adopted,
    Stated,
    choose,
    compare_tables,
    read_commits,
    read_logged,
    refuse_needless,
)
from sluicegate.coordinator.replay.log import Print, open_log
from sluicegate.coordinator.replay.tables import open_table
from sluicegate.coordinator.settings.model import ListenerSettings, Settings
from sluicegate.coordinator.stream.state_records import base_key, encode_record, listener_key
from sluicegate.events.envelope import partition_of
from sluicegate.events.models import Position
from sluicegate.events.problems import Code, Problem
from sluicegate.kafka.permissions import Client
from sluicegate.texts import counted

# Records of listeners for `stream adopt`: those of the former stream continue, missing ones are named.
#
# The outcomes on the commits topic have the name of their stream, so a listener never gets those of the
# former name under the new one. It must have handled them before. Under the same name it would get those of
# decisions that are given up, and take the next ones for repetitions. So it begins at the end of the topic.

_OWNER: Final = "adopted"
"""Owner of a continued record, so that a repeated command replaces it."""


class Listeners(NamedTuple):
    """Listeners of an adopted stream."""

    continued: Mapping[str, ListenerRecord]
    """Records that the former stream has, by listener, for the stream."""
    without: tuple[str, ...]
    """Listeners that mark partitions, and that have no record to continue with."""
    former: str | None = None
    """Former name of the stream; None: it has kept its name."""
    left: tuple[str, ...] = ()
    """Listeners of the former stream whose records do not continue."""
    ahead: tuple[str, ...] = ()
    """Keys of records after the newest commit in the table, whose numbers are used again."""

    def messages(self) -> dict[str, bytes | None]:
        """Return the records to write by key, in their order; None: to delete.

        The new ones come first: a command that ends in between leaves no listener without a record.
        """
        made: dict[str, bytes | None] = {
            listener_key(each.stream, name, each.owner): encode(each) for name, each in self.continued.items()
        }
        return made | {key: None for key in self.ahead if key not in made}

    def lines(self, watermark: int | None) -> list[str]:
        """Return the sentences about them; `watermark` is that of the newest commit."""
        lines = [
            f"listener {name} continues with its record"
            + (f", after decision {each.decision}" if each.decision is not None else "")
            for name, each in sorted(self.continued.items())
        ]
        return lines + [f"WARNING: {self._without(name, watermark)}" for name in self.without]

    def _without(self, name: str, watermark: int | None) -> str:
        """Return what the lack of a record means for the marks of a listener."""
        known = iso_time(watermark)
        some = f"the partitions that end at {known} (less its delay) or later" if known else "all partitions"
        end = (
            f"Of {some}, those that get no more files are never marked. Mark them by hand when the watermark "
            "of the stream has passed their end: see docs/moving.md, Marks"
        )
        if self.former is None:
            lost = "is lost, with the partitions that waited for their mark"
            return f"the record of listener {name} {lost}. {end}"
        has = f"has {', '.join(self.left)}" if self.left else "has no other one"
        return (
            f"the former stream {self.former} has no record of a listener {name} of this type; it {has}. A "
            f"listener that shall continue keeps its name and type. So {name} begins again. {end}"
        )


async def read_listeners(
    settings: Settings, stream: str, former: str, decision: int, *, gives_up: bool
) -> Listeners:
    """Return the listeners of a stream that is adopted after a decision.

    `gives_up`: the log has later decisions, whose numbers are used again. Raises UserError if a listener has
    not handled the decisions of the former name, or those up to this one; KafkaError, TimeoutError.
    """
    wanted = settings.streams[stream].listeners
    if not wanted:
        return Listeners({}, ())
    count = await partition_count(settings, settings.kafka.topic_names().state)
    held = await read_listener_records(settings.kafka, count, {stream, former})
    if former == stream:
        marking = (name for name, own in wanted.items() if own.type == "mark-done")
        without = tuple(name for name in marking if (stream, name) not in held)
        own = {name: each for (of, name), each in held.items() if of == stream}
        again = {
            name: found
            for name, each in own.items()
            if (found := furthest(each.records)) is not None
            and (gives_up or (found.decision or 0) > decision)
        }
        _refuse_unhandled(
            stream, {name: (again[name], wanted[name]) for name in again if name in wanted}, decision
        )
        keys = tuple(key for name in again for key, _ in own[name].keys)
        ends = await _ends(settings, {each.partition for each in again.values()})
        continued = {
            name: _continued(each, stream, decision, ends[each.partition]) for name, each in again.items()
        }
        return Listeners(continued, without, ahead=keys)
    there = {
        name: found
        for (of, name), each in held.items()
        if of == former and (found := furthest(each.records)) is not None
    }
    going = {name: each for name, each in there.items() if name in wanted and wanted[name].type == each.type}
    _refuse_behind(stream, former, {name: (each, wanted[name]) for name, each in going.items()}, decision)
    return Listeners(
        {name: _continued(each, stream, decision) for name, each in going.items()},
        tuple(
            name
            for name, own in wanted.items()
            if own.type == "mark-done" and name not in going and (stream, name) not in held
        ),
        former,
        tuple(sorted(there.keys() - going.keys())),
    )


async def _ends(settings: Settings, partitions: Collection[int]) -> dict[int, Bounds]:
    """Return the present ends of these partitions of the commits topic. Raises KafkaError, TimeoutError."""
    kafka = settings.kafka
    reader = CommitsReader(kafka.topic_names().commits, kafka.client_options(), kafka.request_timeout)
    try:
        return {each: await reader.bounds(each) for each in partitions}
    finally:
        await reader.close()


def _continued(found: ListenerRecord, stream: str, decision: int, at: Bounds | None = None) -> ListenerRecord:
    """Return a record of the former stream for the new one; `at`: it begins at this end of the topic."""
    # The new name uses the numbers of reverted decisions after the newest commit again.
    ahead = found.decision is not None and found.decision > decision
    more = {"decision": decision, "seen": ()} if ahead else {}
    place = {"offset": 0} if at is None else {"offset": at.end, "topic": at.topic}
    new = {"stream": stream, "owner": _OWNER, "step": found.step + 1, **place}
    return found.model_copy(update={**new, **more})


def _behind(going: Mapping[str, tuple[ListenerRecord, ListenerSettings]], decision: int) -> str:
    """Return the listeners that have not handled a decision, as a text; empty if all have."""
    behind = {
        name: each.decision
        for name, (each, own) in sorted(going.items())
        if max(each.decision or 0, own.skip_through) < decision
    }
    return ", ".join(
        f"{name} (handled {'decision ' + str(at) if at else 'nothing'})" for name, at in behind.items()
    )


def _refuse_unhandled(
    stream: str, going: Mapping[str, tuple[ListenerRecord, ListenerSettings]], decision: int
) -> None:
    """Refuse listeners that would miss outcomes up to the newest decision in the table. Raises UserError."""
    if said := _behind(going, decision):
        raise UserError(
            f"listeners are behind decision {decision}, the newest one in the table: {said}. They would "
            "miss its outcome, so nothing is written. Start the coordinators, and wait until no listener is "
            f"behind in: sluicegate status --stream {stream}. Then stop them, and repeat. If a listener "
            f"cannot catch up, do by hand what it would have done, and set skip_through = {decision} in its "
            f"settings in [streams.{stream}.listeners]"
        )


def _refuse_behind(
    stream: str, former: str, going: Mapping[str, tuple[ListenerRecord, ListenerSettings]], decision: int
) -> None:
    """Refuse listeners that have not handled the newest decision in the table. Raises UserError."""
    if not (said := _behind(going, decision)):
        return
    raise UserError(
        f"listeners are behind decision {decision}, the newest one in the table: {said}. Outcomes of "
        f"{former} do not reach them under the name {stream}, so nothing is written. Start a coordinator "
        f"that has the stream {former} with these listeners (or put them back into its settings, and send "
        f"it SIGHUP), and wait until no listener is behind in: sluicegate status --stream {former}. Then "
        f"remove the stream {former} again, and repeat. If a listener shall not continue, remove it from "
        f"[streams.{stream}.listeners]. If it cannot catch up, do by hand what it would have done, and set "
        f"skip_through = {decision} in its settings there"
    )


_FORM: Final = "REGION=INCARNATION:CHECKPOINT:DIGEST"
_NOTHING: Final = "none"


def _positions(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, Position | None]:
    """Parse positions; return them by region. Raises BadParameter."""
    found: dict[str, Position | None] = {}
    for text in given:
        region, _equals, place = text.partition("=")
        parts = place.split(":", 2)
        at = None
        try:
            if place != _NOTHING:
                incarnation, checkpoint, digest = parts
                at = Position(incarnation=incarnation, checkpoint=int(checkpoint), digest=digest)
        except (ValueError, ValidationError) as error:
            raise click.BadParameter(f"{text!r} does not have the form {_FORM}") from error
        if not region or region in found:
            raise click.BadParameter(f"{text!r}: name each region once")
        found[region] = at
    return found


def _assignment(_: click.Context, __: click.Parameter, text: str | None) -> tuple[int, int] | None:
    """Parse the number of an assignment and the decision that it follows. Raises BadParameter."""
    if text is None:
        return None
    number, _colon, after = text.partition(":")
    if not number.isdecimal() or not (after or "0").isdecimal():
        raise click.BadParameter(f"{text!r} does not have the form NUMBER or NUMBER:AFTER")
    return int(number), int(after or 0)


@click.command("adopt")
@order_options
@click.option("--from-stream", metavar="NAME", help="Former name of the stream, if it has another one now.")
@click.option(
    "--position",
    "stated",
    multiple=True,
    metavar=_FORM,
    callback=_positions,
    help="Your statement: the table has the region up to this checkpoint, and nothing after it; "
    "REGION=none: nothing of it. For a table whose newest commit does not state its positions; once for each "
    "region of the assignment.",
)
@click.option(
    "--assignment",
    metavar="NUMBER[:AFTER]",
    callback=_assignment,
    help="With --position: the options `assignment` and `assignment.after` of the jobs.  [default: 0:0]",
)
@click.option(
    "--give-up",
    type=click.IntRange(min=1),
    metavar="DECISION",
    help="Your statement: the log's commits up to this one, which the table lacks, cannot be made again. "
    "The sources are read again for their rows.",
)
@click.option(
    "--leave-out",
    "left_out",
    multiple=True,
    metavar="NAME",
    help="Continue although this further table differs from the newest commit; repeat it for more.",
)
@forged_option
@click.option("--dry-run", "dry", is_flag=True, help="Only print the positions.")
@json_option
def adopt(
    settings: Settings,
    stream: str,
    from_stream: str | None,
    stated: dict[str, Position | None],
    assignment: tuple[int, int] | None,
    give_up: int | None,
    left_out: tuple[str, ...],
    forged: tuple[str, ...],
    dry: bool,
    as_json: bool,
) -> None:
    """Continue a stream from its table, where the log does not lead to it.

    For topics that were lost, or that are older than the table; another Kafka cluster; another name of the
    stream; a table that was built again. The next decision follows the newest commit in the table. Everything
    after that is read again: start the drivers again, and reset the regions of Spark queries. Stop the
    coordinators and the drivers first. A stream that continues by itself is refused.
    """
    if assignment is not None and not stated:
        raise click.UsageError("--assignment belongs to --position")
    number, after = assignment or (0, 0)
    statement = Stated(stated, number, after) if stated else None
    order = _Order(stream, from_stream or stream, statement, give_up, left_out, forged, dry)
    with progress_line(wanted=not as_json) as line:
        found = run_async(settings, _adopt(settings, order, line.show))
    print_result(_values(stream, found), _lines(order, found), as_json=as_json)


class _Order(NamedTuple):
    stream: str
    former: str
    """Name under which the table's commits were made."""
    stated: Stated | None
    give_up: int | None
    left_out: tuple[str, ...]
    forged: tuple[str, ...]
    dry: bool


class _Found(NamedTuple):
    adopted: Adopted
    skipped: int
    """Events of the stream that the topics have already, and that have no effect."""
    listeners: Listeners
    view_stays: str | None = None
    """Reason for which the former view is still in Redis; None: it is not."""


async def _adopt(settings: Settings, order: _Order, show: Print) -> _Found:
    """Write the records of the adopted stream, the base record first. Raises KafkaError, UserError."""
    stream, former = order.stream, order.former
    own = settings.streams[stream]
    if former != stream:
        await _refuse_former(settings, former)
    held = await read_own_records(settings, stream)
    if isinstance(held.record, Problem) and held.record.code is not Code.STATE_RECORD_MALFORMED:
        raise UserError(format_problem(held.record, stream))
    with open_table(own, stream) as table:
        show("reading the history of the table")
        commits = await read_commits(table, former)
        async with open_log(settings, stream, show=show) as log:
            begin = await log.begin()
            logged = await read_logged(log, stream, held, own.commit_user, commits, order.forged)
        refuse_needless(stream, commits, logged, order.give_up, order.stated)
        adopted = choose(former, commits, logged, order.stated)
        adopted = await compare_tables(table, commits, adopted, order.left_out)
    if held.record is not None or logged.events:
        # Else no coordinator has the stream: it would have written its record or its policy at once.
        await refuse_members(settings, "would replace what this command writes")
    gives_up = logged.committed > commits.decision
    listeners = await read_listeners(settings, stream, former, adopted.account.decision, gives_up=gives_up)
    view_stays = None
    if not order.dry:
        former_record = held.record if isinstance(held.record, StateRecord) else None
        record = adopted.record(stream, own.commit_user, commits.seen.identity, logged, former_record)
        await require_permissions(settings, Client.KEEPER)
        await note_order(settings, stream, f"after decision {adopted.account.decision}")
        value, base = encode_record(record), base_key(stream, begin)
        # Base records of a log that was longer would be taken for those of this one.
        stale = {key: None for start in held.bases if (key := base_key(stream, start)) != base}
        # Only the last one is read first, so an interrupted command is simply repeated.
        values = {**listeners.messages(), **stale, base: value, stream: value}
        home = partition_of(stream, await partition_count(settings, settings.kafka.topic_names().state))
        await write_records(settings, [(StateKey(home, key), each) for key, each in values.items()])
        # Its revision is an offset of the former log, and may be higher than those of the new one.
        view_stays = await remove_view(settings, stream)
    return _Found(adopted, logged.events, listeners, view_stays)


async def _refuse_former(settings: Settings, former: str) -> None:
    """Refuse while the coordinator that this command sees commits by the former name. Raises UserError."""
    if former in await ask_coordinator(settings):
        raise UserError(
            f"the coordinator at {settings.http.host}:{settings.http.port} has the former stream {former} in "
            "its settings, and may commit more to the table. Remove it from the settings of all "
            "coordinators, send them SIGHUP, and repeat"
        )


# --- output ---------------------------------------------------------------------------------------


def _values(stream: str, found: _Found) -> dict[str, Any]:
    account = found.adopted.account
    regions = {name: each.position for name, each in account.regions.items()}
    return {
        "stream": stream,
        "decision": account.decision,
        "snapshot": found.adopted.ref.id if found.adopted.ref is not None else None,
        "stated": found.adopted.stated,
        "skipped_events": found.skipped,
        "positions": {name: at.model_dump() if at is not None else None for name, at in regions.items()},
        "source_offsets": {name: each.source_offsets for name, each in account.regions.items()},
        "watermark": account.watermark,
        "tables": {name: each.newest.decision for name, each in sorted(account.tables.items())},
        "listeners_continued": sorted(found.listeners.continued),
        "listeners_without_marks": list(found.listeners.without),
        "ended": sorted(name for name, each in account.regions.items() if each.ends),
    }


def _lines(order: _Order, found: _Found) -> list[str]:
    stream, dry, account, newest = order.stream, order.dry, found.adopted.account, found.adopted.ref
    what = "would continue" if dry else "continues"
    lines = [
        f"stream {stream} {what} after decision {account.decision} (snapshot {newest.id} of its table)"
        if newest is not None
        else f"stream {stream} {what} at its beginning: its table has no commit of it"
    ]
    for name, each in sorted(account.regions.items()):
        at = each.position
        place = (
            f"checkpoint {at.checkpoint} of incarnation {at.incarnation}" if at else "nothing is committed"
        )
        lines.append(f"  {name}  {place}" + (f", {each.phase}" if each.ends else ""))
        if each.source_offsets is not None:
            lines.append(f"    source offsets: {each.source_offsets}")
    if found.skipped:
        lines.append(f"without effect: {counted(found.skipped, 'event')} of it that the topics have already")
    for name in order.left_out:
        lines.append(
            f"table {name} is left out: it gets no commits until you state that it is right: sluicegate "
            f"stream resume --stream {stream} --table {name} --head SNAPSHOT:IDENTITY"
        )
    lines += found.listeners.lines(account.watermark)
    if found.view_stays is not None:
        lines.append(f"Its former view is still in Redis: {found.view_stays}. The coordinator replaces it")
    if not dry:
        location = "LOCATION" if order.former == stream else "EMPTY_LOCATION"
        lines.append(
            "Start the coordinators. Then start each driver again. With Spark, first set the query back: "
            f"sluicegate region reset --stream {stream} --region REGION --checkpoint-location {location}"
            + ("" if order.former == stream else f" (its own location names the stream {order.former})")
        )
        lines.append(
            "Commits wait for each region that has not ended, also if it was idle. For a region of batch "
            "jobs in Python, call prepare_jobs with their options. If one has ended for good: "
            f"sluicegate region remove --stream {stream} --region REGION"
        )
    return lines
