"""`sluicegate stream recover` and `stream forget`: state records that are replaced, or deleted."""

from collections.abc import Iterable, Mapping

import click

from sluicegate.cli.coordinators import ask_coordinator
from sluicegate.cli.errors import UserError, run_async
from sluicegate.cli.kafka import StateKey, read_own_records, read_state_keys, refuse_members
from sluicegate.cli.options import any_stream_option, config_option, order_options, sender_options
from sluicegate.cli.orders import note_order, require_permissions
from sluicegate.cli.terminal import progress_line
from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.observe.messages import ADOPT, fill, format_problem
from sluicegate.coordinator.replay.decisions import Group, ReplayRefused, Start
from sluicegate.coordinator.replay.log import Print, open_log
from sluicegate.coordinator.replay.reading import Window, parse_mark, since
from sluicegate.coordinator.replay.tables import open_table
from sluicegate.coordinator.replay.verify import Verdict, verify
from sluicegate.coordinator.service.startup import state_store
from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.stream.records import Held
from sluicegate.coordinator.stream.state_records import encode_record, recovery_record
from sluicegate.events.problems import Code, Problem
from sluicegate.kafka.clients import started
from sluicegate.kafka.permissions import Client
from sluicegate.kafka.producer import SessionProducer
from sluicegate.kafka.topics import TopicRole
from sluicegate.state_store import StateStoreUnavailable
from sluicegate.texts import counted


async def has_view(settings: Settings, stream: str) -> bool:
    """Return True if Redis has a view of the stream; False without Redis. Raises StateStoreUnavailable."""
    async with state_store(settings) as store:
        return store is not None and stream in await store.streams()


async def remove_view(settings: Settings, stream: str) -> str | None:
    """Remove the view of a stream from Redis. Return the reason if that is not known to be done."""
    async with state_store(settings) as store:
        try:
            if store is not None:
                await store.remove(stream)
        except StateStoreUnavailable as error:
            return str(error)
    return None


async def write_records(settings: Settings, values: Iterable[tuple[StateKey, bytes | None]]) -> None:
    """Write state records in their order; None: delete them. Raises KafkaError."""
    kafka, topic = settings.kafka, settings.kafka.topic_names().state
    producer = SessionProducer(kafka.max_message_bytes, kafka.limits(), **kafka.client_options())
    async with started(producer):
        for key, value in values:
            await producer.send_and_wait(topic, value, key=key.name.encode(), partition=key.partition)


# `sluicegate stream recover`: replace an unusable state record, so that the log is read again.


@click.command()
@order_options
def recover(settings: Settings, stream: str) -> None:
    """Replace a state record that is malformed, or that lacks decisions of its log and its table.

    The stream continues from its base record and the log. Without a base record, the whole log is read
    again, with the commit user of the settings: do not change that meanwhile. If the log has lost events that
    are needed, the command changes nothing. Restart the coordinators afterwards: a stalled stream does not
    read its record again.

    A record lacks decisions if its coordinator had no key for them (`table-ahead`). Stop the coordinators
    first, and give them and this command all keys. The log is compared with the table before.
    """
    with progress_line() as line:
        record = run_async(settings, _recover(settings, stream, line.show))
    user = record.commit_user or settings.streams[stream].commit_user
    click.echo(
        f"stream {stream} has a new state record for its commit user {user}: its log is read again from "
        f"offset {record.low_water}. Restart the coordinators"
    )


async def _recover(settings: Settings, stream: str, show: Print) -> StateRecord:
    """Write the record from which the stream recovers, and return it. Raises KafkaError, UserError."""
    held = await read_own_records(settings, stream)
    if isinstance(held.record, StateRecord):
        record = await record_of_log(settings, stream, held, held.record, show)
    elif isinstance(held.record, Problem) and held.record.code is Code.STATE_RECORD_MALFORMED:
        async with open_log(settings, stream) as log:
            begin = await log.begin()
        record = _earliest(stream, held.bases, begin, settings.streams[stream].commit_user)
    else:
        raise UserError(
            f"stream {stream} has no malformed record, so it is not replaced. See: "
            f"sluicegate status --stream {stream}"
        )
    keys = [each for each in await read_state_keys(settings, stream) if each.name == stream]
    await require_permissions(settings, Client.KEEPER, TopicRole.STATE)
    await note_order(settings, stream)
    await write_records(settings, [(key, encode_record(record)) for key in keys])
    return record


# The record from which a stream reads its log again, if its table is ahead and the log has what is missing.
#
# A coordinator without a key reads the decisions of another one as dead letters. Its state record then
# includes their places without their effects, also after it has got the key.


async def record_of_log(
    settings: Settings, stream: str, held: Held, newest: StateRecord, show: Print
) -> StateRecord:
    """Return the record to begin with. Raises KafkaError, TimeoutError, and UserError if nothing is missing.

    The whole log is compared with the table first, with the keys of this command.
    """
    with open_table(settings.streams[stream], stream) as table:
        ahead = (await table.inspect()).newest_decision or 0
        if ahead <= newest.state.decided:
            raise UserError(
                f"the state record of stream {stream} is not malformed, and its table has no later decision, "
                f"so it is not replaced. See: sluicegate status --stream {stream}"
            )
        await refuse_members(settings, "would write its own record again")
        async with open_log(settings, stream, show=show) as log:
            begin = await log.begin()
            # An adopted stream has a base record at the beginning of the log.
            bases = {each: base for each, base in held.bases.items() if begin or not each}
            record = _earliest(stream, bases, begin, newest.commit_user)
            start = Start(record.low_water, record.state, record.applied)
            whole = Window(parse_mark("earliest"), parse_mark("latest"))
            # The anchor has each decision, and proves it. Trouble of another table is none of the record.
            found = await verify(log, stream, start, whole, [table])
            if isinstance(verdict := found[""], ReplayRefused):
                raise verdict
            _judge(stream, ahead, verdict)
    return record


def _earliest(stream: str, bases: Mapping[int, StateRecord], begin: int, user: str | None) -> StateRecord:
    """Return the record that reads the most of a log that begins at this offset.

    Raises UserError if the log lacks its beginning.
    """
    base = recovery_record(None, bases, begin)
    if base is not None and base.low_water >= begin:
        return base
    if begin > 0:
        raise UserError(
            f"the log of stream {stream} begins at offset {begin}, and no base record has the state before "
            "that, so it cannot be read again. To leave it, " + fill(ADOPT, {"stream": stream})
        )
    return StateRecord(stream=stream, applied=-1, low_water=0, state=LogState(), commit_user=user)


def _judge(stream: str, ahead: int, verdict: Verdict) -> None:
    """Refuse a log that does not explain the table. Raises UserError."""
    fold = verdict.done.fold
    if fold.problem is not None:
        raise UserError(format_problem(fold.problem, stream))
    # Without a refused record, no key is missing: the topics are older than the table, or others commit.
    refused = bool(fold.unverified.besides(()))
    way_out = (
        _keys(stream, fold.unverified.unsigned)
        if refused
        else f"To leave it, {fill(ADOPT, {'stream': stream})}"
    )
    if fold.replica.state.decided < ahead:
        raise UserError(
            f"the log of stream {stream} ends with decision {fold.replica.state.decided}, and its table has "
            f"decision {ahead}, so the log does not have what is missing. {way_out}"
        )
    # A commit that is not judged may be another deployment's.
    if verdict.wrong or verdict.unjudged:
        raise UserError(f"the log of stream {stream} and its table differ. {way_out}")


def _keys(stream: str, unsigned: Group | None) -> str:
    refused = ""
    if unsigned is not None:
        refused = (
            f"{unsigned}. If your coordinators wrote them, set kafka.signing.since of all members and "
            f"commands to a time after the last of those ({since(unsigned)} is after all that are refused), "
            "and repeat. "
        )
    return refused + (
        "Give this command all keys that the log was signed with (kafka.signing.key_files), and repeat. "
        f"Compare log and table: sluicegate replay verify --stream {stream}"
    )


# `sluicegate stream forget`: delete the records of a stream, so that it does not hold the log any more.


@click.command()
@config_option
@any_stream_option
@sender_options
@click.option("--yes", is_flag=True, help="Delete the records. Without it, the command only shows them.")
@click.pass_context
def forget(context: click.Context, settings: Settings, stream: str, yes: bool) -> None:
    """Delete all records of a stream that is not in the settings any more, and its view in Redis.

    Its table and its log stay.

    A stream with records keeps its events in the log: the coordinators delete no event that it could still
    need. After `forget`, they may. The stream can then neither be continued nor replayed. Remove it from the
    settings of all coordinators first: the command sees only its own settings and the coordinator at
    http.host. Without --yes, the exit status is 1, because nothing is deleted.
    """
    keys, viewed = run_async(settings, _forget(settings, stream, yes=yes))
    topic = settings.kafka.topic_names().state
    if not keys and not viewed:
        raise UserError(f"stream {stream} has no record in {topic}, so there is nothing to forget")
    if yes:
        click.echo(f"stream {stream} is forgotten: {counted(len(keys), 'record')} deleted in {topic}")
        if viewed:
            click.echo("its view in Redis is deleted")
        click.echo(
            "Its events may be deleted from the log, and its pending checkpoints are never committed. A "
            "coordinator that has the stream in its settings would begin it again from the start of the log"
        )
        return
    for each in keys:
        click.echo(f"would be deleted: {each.name} (partition {each.partition} of {topic})")
    if viewed:
        click.echo("would be deleted: its view in Redis")
    click.echo(
        "Make sure that no coordinator has the stream in its settings, and that its pending checkpoints are "
        f"not needed. Then: sluicegate stream forget --stream {stream} --yes"
    )
    context.exit(1)


async def _forget(settings: Settings, stream: str, *, yes: bool) -> tuple[list[StateKey], bool]:
    """Return the records of the stream, and True if it has a view in Redis; delete them if `yes`.

    Raises KafkaError, UserError.
    """
    if stream in settings.streams:
        raise UserError(
            f"stream {stream} is in these settings, so a coordinator serves it. Remove [streams.{stream}] "
            "from the settings of all coordinators, let them read the settings again (SIGHUP), and repeat"
        )
    if stream in await ask_coordinator(settings):
        raise UserError(
            f"the coordinator at {settings.http.host}:{settings.http.port} has stream {stream} in its "
            "settings. Remove it there, send that coordinator SIGHUP, and repeat"
        )
    keys = await read_state_keys(settings, stream)
    try:
        viewed = await has_view(settings, stream)
    except StateStoreUnavailable as error:
        raise _redis_away(stream, str(error)) from error
    if yes and (keys or viewed):
        await require_permissions(settings, Client.KEEPER, TopicRole.STATE)
        await note_order(settings, stream)
        await write_records(settings, [(key, None) for key in keys])
        # The view last: while it is there, a command that failed can be repeated.
        if viewed and (reason := await remove_view(settings, stream)) is not None:
            raise _redis_away(stream, reason)
    return keys, viewed


def _redis_away(stream: str, reason: str) -> UserError:
    return UserError(f"{reason}. It may have a view of stream {stream}. Repeat when it responds")
