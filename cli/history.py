"""Past of a stream: `sluicegate history` shows its outcomes, `sluicegate audit` its orders."""

import time
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import click
from aiokafka import ConsumerRecord, TopicPartition

from sluicegate.cli.errors import UserError, run_async
from sluicegate.cli.kafka import consumer_of, read_state_keys
from sluicegate.cli.options import any_stream_option, config_option, json_option, print_result, stream_options
from sluicegate.cli.terminal import progress_line
from sluicegate.coordinator.observe.messages import format_problem, iso_time, listed
from sluicegate.coordinator.replay.audit import Audit, Audited, read_orders
from sluicegate.coordinator.replay.log import Print, Progress, partitions_of, quiet, read_range
from sluicegate.coordinator.settings.model import Settings, parse_seconds
from sluicegate.events.codec import Flaw
from sluicegate.events.envelope import partition_of
from sluicegate.events.models import Command, CommitSummary, CutAbandoned, CutReverted, SnapshotRef
from sluicegate.events.notifications import Committed, read_notification
from sluicegate.events.signing import State
from sluicegate.texts import counted

# The newest outcomes of a stream, as its commits topic has them.

STEP: Final = 1_000
"""Messages that are read first, from the end of the topic. Each later step backwards is twice as long."""


class Outcome(NamedTuple):
    """Outcome of one attempt to commit."""

    time: int
    """Time of its first announcement, in milliseconds since the Unix epoch."""
    body: Committed | CutAbandoned | CutReverted


async def read_outcomes(settings: Settings, stream: str, most: int, show: Print = quiet) -> list[Outcome]:
    """Return up to `most` of the newest outcomes of a stream, the oldest first, each once.

    Older ones than the retention of the commits topic are gone. Raises ReplayRefused if there is no such
    topic, KafkaError, TimeoutError.
    """
    topic = settings.kafka.topic_names().commits
    async with consumer_of(settings) as consumer:
        source = TopicPartition(topic, partition_of(stream, len(await partitions_of(consumer, topic))))
        begin = (await consumer.beginning_offsets([source]))[source]
        end = (await consumer.end_offsets([source]))[source]
        found: dict[str, Outcome] = {}
        step, patience, read = STEP, settings.kafka.request_timeout * 4, 0
        # At most the whole topic is read, from its end.
        progress = Progress(show, "reading the commits topic", 0, end - begin)
        while end > begin and len(found) < most:
            start = max(begin, end - step)
            earlier: dict[str, Outcome] = {}
            async for batch in read_range(consumer, source, start, end, patience):
                _take(batch, stream, earlier)
                progress.at(read + batch[-1].offset + 1 - start)
            # A restart repeats what it announced last: the first time counts.
            found = {**earlier, **{name: each for name, each in found.items() if name not in earlier}}
            read, end, step = read + end - start, start, 2 * step
    return list(found.values())[-most:]


def _take(records: list[ConsumerRecord], stream: str, found: dict[str, Outcome]) -> None:
    for record in records:
        read = read_notification(record.headers, record.value)
        if isinstance(read, Flaw) or read.stream != stream:
            continue
        if isinstance(read.body, Committed | CutAbandoned | CutReverted):
            found.setdefault(read.id, Outcome(record.timestamp, read.body))


@click.command()
@stream_options
@click.option(
    "--last",
    default=20,
    show_default=True,
    type=click.IntRange(min=1, max=100_000),
    help="How many outcomes to show.",
)
@click.option(
    "--vector",
    is_flag=True,
    help="Show only the snapshots of all tables as of the newest commit, for a reader of several tables.",
)
@json_option
def history(settings: Settings, stream: str, last: int, vector: bool, as_json: bool) -> None:
    """Show the newest outcomes of a stream, the oldest first.

    An outcome is a commit, full or partial, a decision that was reverted, or an attempt that was abandoned.
    They are read from the commits topic, which keeps them for its retention.
    """
    if vector:
        with progress_line(wanted=not as_json) as line:
            newest = run_async(settings, _newest_commit(settings, stream, line.show))
        shown = _vector_values(stream, newest, settings.streams[stream].format)
        print_result(shown, _vector_lines(shown), as_json=as_json)
        return
    with progress_line(wanted=not as_json) as line:
        found = run_async(settings, read_outcomes(settings, stream, last, line.show))
    values = {"stream": stream, "outcomes": [_outcome_values(each) for each in found]}
    lines = [_outcome_line(each) for each in found]
    nothing = f"the commits topic has no outcome of stream {stream}"
    print_result(values, lines or [nothing], as_json=as_json)


async def _newest_commit(settings: Settings, stream: str, show: Print) -> Committed:
    """Return the newest commit of a stream. Raises UserError if the topic has none."""
    newest = [each.body for each in await read_outcomes(settings, stream, _FEW, show)]
    if not any(isinstance(each, Committed) for each in newest):
        newest = [each.body for each in await read_outcomes(settings, stream, _MANY, show)]
    for body in reversed(newest):
        if isinstance(body, Committed):
            return body
    raise UserError(
        f"the commits topic has no commit of stream {stream}: it has made none yet, or the last one is older "
        "than the retention of the topic. Read the newest state of the tables"
    )


_FEW: Final = 10
_MANY: Final = 100_000
"""Outcomes among which the newest commit is looked for: abandoned attempts may follow it."""


def _vector_values(stream: str, newest: Committed, lake: str) -> dict[str, Any]:
    """Return the snapshots to read, by the ids that readers of the format take; null: only later ones."""

    def id_of(snapshot: SnapshotRef | None) -> str | None:
        # The position of a snapshot of Iceberg is its sequence number.
        return None if snapshot is None else snapshot.identity if lake == "iceberg" else str(snapshot.id)

    return {
        "stream": stream,
        "decision": newest.decision,
        "snapshot": id_of(newest.snapshot),
        "tables": {
            name: {"decision": each.decision, "snapshot": id_of(each.snapshot)}
            for name, each in sorted(newest.tables.items())
        },
    }


def _vector_lines(values: dict[str, Any]) -> list[str]:
    later = "unknown: only later ones can be read"
    lines = [f"decision {values['decision']}: snapshot {values['snapshot'] or later}"]
    for name, each in values["tables"].items():
        known = f"snapshot {each['snapshot'] or later}, of decision {each['decision']}"
        lines.append(f"  table {name}: {known if each['decision'] else 'no commit yet'}")
    return lines


def _outcome_kind(outcome: Outcome) -> str:
    match outcome.body:
        case Committed(fallbacks=fallbacks, summary=summary):
            forced = summary is not None and summary.forced
            return "partial" if fallbacks else "forced" if forced else "full"
        case CutReverted():
            return "reverted"
        case CutAbandoned():
            return "abandoned"


def _outcome_values(outcome: Outcome) -> dict[str, Any]:
    return {"outcome": _outcome_kind(outcome), "time": outcome.time, **outcome.body.model_dump(mode="json")}


def _outcome_line(outcome: Outcome) -> str:
    body = outcome.body
    text = f"{iso_time(outcome.time)}  decision {body.decision}  {_outcome_kind(outcome)}"
    if isinstance(body, CutAbandoned):
        why = (
            "all regions had to move" if body.kind == "forced" else "too many regions would have fallen back"
        )
        return f"{text}: {why}; behind: {listed(body.regions)}"
    if body.snapshot is not None:
        text += f", snapshot {body.snapshot.id}"
    if isinstance(body, CutReverted):
        return text
    text += f", {counted(body.files, 'file')}{_content(body.summary)}"
    if touched := [name for name, each in body.tables.items() if each.decision == body.decision]:
        text += f", also in {listed(tuple(sorted(touched)))}"
    if body.watermark is not None:
        text += f", watermark {iso_time(body.watermark)}"
    return text + (f"; fell back: {listed(tuple(sorted(body.fallbacks)))}" if body.fallbacks else "")


def _content(summary: CommitSummary | None) -> str:
    """Format what a commit added, as far as its coordinator has seen it."""
    if summary is None:
        return ""
    rows, size, partitions = summary.total("rows"), summary.total("bytes"), summary.total("partitions")
    text = f", {counted(rows, 'row')}" if rows is not None else ""
    text += f", {counted(size, 'byte')}" if size is not None else ""
    text += f" in {counted(partitions, 'partition')}" if partitions is not None else ""
    if summary.sealed is None:
        return text
    # The clocks of the broker and of the coordinator may differ.
    return f"{text}, visible {max(0, summary.visible - summary.sealed)} ms after its last event"


# `sluicegate audit`: the orders of a stream, with their senders, reasons and effects.

NOTES: Final = (
    *("dead-letters drop", "dead-letters retry", "orphans delete", "region reset", "replay rebuild"),
    *("replay repair", "stream adopt", "stream forget", "stream recover"),
)
"""Commands whose work is outside of the log: their note has no content, so their name is only a claim."""
COMMANDS: Final[dict[Command, tuple[str, tuple[str, ...]]]] = {
    "remove": ("region remove", ("region remove",)),
    "discard": ("region remove --discard", ("region remove",)),
    "close": ("assignment close", ("assignment close",)),
    "skip": ("stream skip", ("stream skip",)),
    "withdraw": ("assignment withdraw", ("assignment withdraw",)),
    "revert": ("commit revert", ("commit revert",)),
    "savepoint": ("stream savepoint", ("stream savepoint",)),
    "drain": ("stream drain", ("stream drain",)),
    "cancel": ("stream cancel", ("stream cancel",)),
    "pause": ("stream pause", ("stream pause", "replay repair")),
    "resume": ("stream resume", ("stream resume", "replay repair")),
}
"""Name of each order of the log, and the commands that write it."""
_SIGNATURES: Final[dict[State, str]] = {
    "valid": "signed",
    "invalid": "THE SIGNATURE IS WRONG",
    "retired": "signed with a key that was retired before: the sender is only a claim",
    "copied": "signed, and appended much earlier or later: a copy, or the clock of the sender is wrong",
    "unsigned": "not signed: the sender is only a claim",
    "unchecked": "signed, but this command cannot check it: the sender is only a claim",
}


def _since(_: click.Context, __: click.Parameter, value: str | None) -> int:
    """Parse a duration before now, or a time; return milliseconds since the Unix epoch, 0 for no limit."""
    if value is None:
        return 0
    try:
        return max(1, time.time_ns() // 1_000_000 - round(1000 * parse_seconds(value)))
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(value)
    except ValueError as error:
        raise click.BadParameter(
            f"{value!r} is neither a duration such as 7d nor a time such as 2026-11-21T16:00:00Z"
        ) from error
    return max(1, round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))


@click.command()
@config_option
@any_stream_option
@click.option(
    "--since",
    callback=_since,
    metavar="TIME",
    help="Only orders since then: a duration such as 7d, or a time.",
)
@click.option(
    "--last",
    default=100,
    show_default=True,
    type=click.IntRange(min=1, max=100_000),
    help="How many orders to show, the newest ones.",
)
@json_option
def audit(settings: Settings, stream: str, since: int, last: int, as_json: bool) -> None:
    """Show the orders of a stream, the oldest first: time, sender, order, reason and effect.

    They are read from the events topic, which keeps them for `replay_window`. The order is what the record
    does. Name, host and reason of the sender are only claims without a valid signature. An order that its own
    command has refused is not in the log.
    """
    owner = settings.streams[stream].owner if stream in settings.streams else ""
    with progress_line(wanted=not as_json) as line:
        found = run_async(settings, _read(settings, stream, last, since, line.show))
    values = {
        "stream": stream,
        "owner": owner or None,
        "older": found.older,
        "orders": [_values(each, stream, owner) for each in found.orders],
        "effects_unknown": found.unknown or None,
    }
    if found.older and not as_json:
        all_of_them = len(found.orders) + found.older
        click.echo(
            f"not shown: {counted(found.older, 'older order')}. To see them: --last {all_of_them}", err=True
        )
    lines = [_printable(_line(each, stream, owner)) for each in found.orders]
    nothing = f"the log has no order of stream {stream}" + (" since then" if since else "")
    print_result(values, lines or [nothing], as_json=as_json)
    if found.unknown and not as_json:
        click.echo(_printable(f"the effects are not known: {found.unknown}"), err=True)


async def _read(settings: Settings, stream: str, last: int, since: int, show: Print) -> Audit:
    found = await read_orders(settings, stream, last, since, show)
    if not found.orders and stream not in settings.streams and not await read_state_keys(settings, stream):
        known = ", ".join(sorted(settings.streams)) or "none"
        raise UserError(
            f"no stream {stream} is known: the settings and the topics have none of this name, and the "
            f"log has no order of it{' since then' if since else ''}. Correct the name; the "
            f"settings have: {known}"
        )
    return found


def _what(audited: Audited) -> str:
    """Format the order by its body, with its arguments. A claim of another order is named as such."""
    order, command = audited.order, audited.command
    claimed = "" if order is None else order.order
    if command is None or audited.is_note:
        arguments = [f"region {audited.region}"] if audited.region else []
    else:
        given = command.model_dump(mode="json", exclude_defaults=True, exclude={"command", "head"})
        arguments = [f"{key} {value}" for key, value in given.items()]
        if command.head is not None:
            arguments.append(f"head {command.head.id}:{command.head.identity}")
    if order is not None and order.about:
        arguments.append(order.about)
    name, written_by = _written(audited, claimed)
    shown = f"{name} ({', '.join(arguments)})" if arguments else name
    return shown if claimed in {"", *written_by} else f'{shown}, CLAIMED AS "{claimed}",'


def _written(audited: Audited, claimed: str) -> tuple[str, Collection[str]]:
    """Return the name of the order, and the commands that write such a record."""
    if audited.is_note:
        return claimed if claimed in NOTES else "a note", NOTES
    if audited.command is not None:
        return COMMANDS[audited.command.command]
    return ("region reset", ("region reset",)) if audited.registers else ("an order", ())


def _sender(audited: Audited) -> str:
    if audited.order is not None:
        return f"by {audited.order.by} on {audited.order.host}"
    return "by a sender whose claim is malformed" if audited.malformed else "by an unnamed sender"


def _effect(audited: Audited, stream: str) -> str:
    match audited.effect:
        case "accepted":
            after = f"decision {audited.decision}" if audited.decision else "no decision"
            return f"accepted after {after}{_outcome(audited)}"
        case "refused" if audited.problem is not None:
            return f"refused: {format_problem(audited.problem, stream)}"
        case "noted":
            return "given; its work is outside of the log"
    return "effect not known"


def _outcome(audited: Audited) -> str:
    match audited.outcome:
        case "reached":
            return f", reached with decision {audited.outcome_decision}"
        case "cancelled":
            return ", cancelled later"
        case "reverted":
            return f", decision {audited.outcome_decision} is reverted"
        case "committed":
            return f", decision {audited.outcome_decision} was in the table after all"
    return ""


def _by_owner(audited: Audited, owner: str) -> bool | None:
    """True if the sender claims to be the owner; None if either is not named."""
    return None if not owner or audited.order is None else audited.order.by == owner


def _line(audited: Audited, stream: str, owner: str) -> str:
    order = audited.order
    other = f" (the owner is {owner})" if _by_owner(audited, owner) is False else ""
    reason = f' "{order.reason}"' if order is not None and order.reason else ""
    sender = f"{_sender(audited)}{other}"
    signed = _SIGNATURES[audited.signature]
    if audited.copy_of is not None:
        signed += (
            f"; A COPY of the order at offset {audited.copy_of}, with the same id: anybody can append one"
        )
    return (
        f"{iso_time(audited.time)}  offset {audited.offset}  {_what(audited)} {sender}{reason}: "
        f"{_effect(audited, stream).rstrip('.')}; {signed}"
    )


def _printable(text: str) -> str:
    """Escape characters that could disguise a line, in texts that come from outside."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in text)


def _values(audited: Audited, stream: str, owner: str) -> dict[str, Any]:
    problem = audited.problem
    command = audited.command
    return {
        "time": audited.time,
        "offset": audited.offset,
        "claim": None if audited.order is None else audited.order.model_dump(mode="json"),
        "claim_malformed": audited.malformed,
        "by_owner": _by_owner(audited, owner),
        "signature": audited.signature,
        "copy_of": audited.copy_of,
        "command": None
        if command is None or audited.is_note
        else command.model_dump(mode="json", exclude_defaults=True),
        "region": audited.region or None,
        "effect": audited.effect,
        "code": None if problem is None else problem.code.value,
        "refusal": None if problem is None else format_problem(problem, stream),
        "decision": audited.decision,
        "outcome": audited.outcome,
        "outcome_decision": audited.outcome_decision,
    }
