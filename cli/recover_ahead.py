"""The record from which a stream reads its log again, if its table is ahead and the log has what is missing.

A coordinator without a key reads the decisions of another one as dead letters. Its state record then includes
their places without their effects, also after it has got the key.
"""

from concurrent.futures import ThreadPoolExecutor

from sluicegate.cli.errors import UserError
from sluicegate.cli.kafka import count_members
from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.core.state_record import StateRecord, recovery_record
from sluicegate.coordinator.observe.messages import ADOPT, fill, format_problem
from sluicegate.coordinator.replay.decisions import Group, ReplayRefused, Start
from sluicegate.coordinator.replay.log import StreamLog, open_log
from sluicegate.coordinator.replay.reading import Window, parse_mark, since
from sluicegate.coordinator.replay.tables import ReplayTable
from sluicegate.coordinator.replay.verify import Verdict, verify
from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.stream.records import Held
from sluicegate.lakes.port import TableRefused


async def record_of_log(settings: Settings, stream: str, held: Held, newest: StateRecord) -> StateRecord:
    """Return the record to begin with. Raises KafkaError, TimeoutError, and UserError if nothing is missing.

    The whole log is compared with the table first, with the keys of this command.
    """
    with ThreadPoolExecutor(1) as threads:
        try:
            table = ReplayTable(settings.streams[stream], threads, stream)
            try:
                ahead = (await table.inspect()).newest_decision or 0
                if ahead <= newest.state.decided:
                    raise UserError(
                        f"the state record of stream {stream} is not malformed, and its table has no later "
                        f"decision, so it is not replaced. See: sluicegate status --stream {stream}"
                    )
                await _refuse_members(settings, stream)
                async with open_log(settings, stream) as log:
                    record = _earliest(stream, newest, held, await log.begin())
                    _judge(stream, ahead, await _verdict(log, record, table))
            finally:
                table.close()
        except (ReplayRefused, TableRefused) as error:
            raise UserError(str(error)) from error
    return record


async def _refuse_members(settings: Settings, stream: str) -> None:
    """Refuse a stream that is served: its owner would write its own record again. Raises UserError."""
    members = await count_members(settings)
    if members != 0:
        who = f"{members} run" if members else "they cannot be seen from here"
        raise UserError(
            f"coordinators of the group {settings.kafka.group_id} may serve stream {stream} ({who}), and "
            "write their own record again. Stop them first (a killed one counts until its session ends)"
        )


def _earliest(stream: str, newest: StateRecord, held: Held, begin: int) -> StateRecord:
    """Return the record that reads the most of the log. Raises UserError if the log lacks its beginning."""
    # An adopted stream has a base record at the beginning of the log.
    bases = {each: base for each, base in held.bases.items() if begin or not each}
    base = recovery_record(None, bases, begin)
    if base is not None and base.low_water >= begin:
        return base
    if begin > 0:
        raise UserError(
            f"the log of stream {stream} begins at offset {begin}, and no base record has the state before "
            "that, so it cannot be read again. To leave it, " + fill(ADOPT, {"stream": stream})
        )
    return StateRecord(
        stream=stream, applied=-1, low_water=0, state=LogState(), commit_user=newest.commit_user
    )


async def _verdict(log: StreamLog, record: StateRecord, table: ReplayTable) -> Verdict:
    start = Start(record.low_water, record.state, record.applied)
    window = Window(parse_mark("earliest"), parse_mark("latest"))
    return await verify(log, record.stream, start, window, table, lambda _: None)


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
