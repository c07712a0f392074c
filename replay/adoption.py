"""Adoption: the state with which a stream continues from its table, after the topics of Kafka were lost.

The table is the truth then. Its newest commit of the stream states the positions (`coordinator.account`). All
incarnations end, because their uncommitted events are lost: each driver begins a new one at the position of
its region, and reads what follows again.
"""

from collections.abc import Mapping
from typing import NamedTuple

from sluicegate.coordinator.account import Account, RegionAccount, UnreadableAccount, decode_account
from sluicegate.coordinator.core.heads import head_of
from sluicegate.coordinator.core.log_state import (
    AssignmentState,
    Former,
    LogState,
    RegionPhase,
    RegionState,
)
from sluicegate.coordinator.core.state_record import StateRecord, TableProgress
from sluicegate.events.models import Position
from sluicegate.lakes.accounts import KeepsAccounts
from sluicegate.lakes.history import PastSnapshot, TableHistory
from sluicegate.lakes.port import TableState
from sluicegate.replay.errors import ReplayRefused
from sluicegate.replay.tables import ReplayTable


class Place(NamedTuple):
    """The part of a stream's log that is not to be read: it has no decision."""

    partition: int
    end: int
    """The first offset of the log of the adopted stream."""
    newest: str | None
    """Id of the event before it; None if there is none, or if it is no event."""


class Adopted(NamedTuple):
    """A stream as its table has it."""

    newest: PastSnapshot
    """Its newest commit."""
    account: Account
    stated: bool
    """True if an operator has stated the positions."""

    def record(self, commit_user: str, identity: str, place: Place) -> StateRecord:
        """Return the state record from which the coordinators continue."""
        head = head_of(self.newest.ref)
        state = state_of(self.account).model_copy(
            update={"partition": place.partition, "table": identity, "snapshot": head}
        )
        return StateRecord(
            stream=self.account.stream,
            applied=place.end - 1,
            applied_id=place.newest,
            commit_user=commit_user,
            low_water=place.end,
            state=state,
            table=TableProgress(identity=identity, head=head, upto=self.newest.decision),
        )


def state_of(account: Account) -> LogState:
    """Return the state of a log that ends with the commit of this account."""
    current, former = account.assignment, account.former
    regions = _regions(account.regions, current)
    return LogState(
        assignment=current,
        former=Former(assignment=former.assignment, regions=_regions(former.regions, former.assignment))
        if former is not None
        else None,
        withdrawn=account.withdrawn,
        regions=regions,
        ended=list(account.ended),
        decided=account.decision,
        watermark=account.watermark,
    )


def _regions(
    accounts: Mapping[str, RegionAccount], assignment: AssignmentState | None
) -> dict[str, RegionState]:
    assigned = {*assignment.regions} if assignment is not None else {*accounts}
    return {name: _region(each, name in assigned) for name, each in accounts.items()}


def _region(each: RegionAccount, assigned: bool) -> RegionState:
    return RegionState(
        # A region with work after its position has to register again, to read that once more.
        phase=each.ended or (RegionPhase.WAITING if assigned else RegionPhase.LEFT),
        position=each.position,
        source_offsets=each.source_offsets,
        watermark=each.watermark,
        listeners=dict(each.listeners),
        fallbacks=each.fallbacks,
        single_region=each.single_region,
    )


async def read_adopted(
    stream: str, table: ReplayTable, stated: Mapping[str, Position]
) -> tuple[Adopted, TableState]:
    """Return the stream as its table has it.

    `stated` are positions by an operator, for a commit without an account. Raises ReplayRefused.
    """
    seen = await table.inspect()
    user, history = table.settings.commit_user, await table.history()
    newest = _newest(stream, user, seen, history)
    keeps = table.capable(KeepsAccounts, "`stream adopt`") if not stated else table.maintenance
    text = ""
    if isinstance(keeps, KeepsAccounts):
        text = await table.call(lambda: keeps.account(user, newest.ref))
    account, why = _account(stream, newest, text)
    if account is not None and not stated:
        return Adopted(newest, account, stated=False), seen
    if account is not None:
        raise ReplayRefused(
            f"commit {newest.decision} of stream {stream} states its positions itself. Leave --position out"
        )
    if not stated:
        raise ReplayRefused(
            f"commit {newest.decision} of stream {stream} (snapshot {newest.ref.id}) does not state the "
            f"positions of the regions: {why}. State them with --position, once for each region. The last "
            "event `cut.committed` in a copy of the topics, or in the feed of another system, has them"
        )
    regions = {name: RegionAccount(position=at) for name, at in stated.items()}
    ended = sorted({at.incarnation for at in stated.values()})
    made = Account(
        version=1, stream=stream, decision=newest.decision, digest=newest.digest, regions=regions, ended=ended
    )
    return Adopted(newest, made, stated=True), seen


def _newest(stream: str, user: str, seen: TableState, history: TableHistory) -> PastSnapshot:
    """Return the newest commit of a stream in its table. Raises ReplayRefused."""
    ours = [past for past in history.commits if past.commit_user == user]
    made = [past for past in ours if past.digest]
    if not made and history.whole:
        raise ReplayRefused(
            f"the table of stream {stream} has no commit of the commit user {user}, so nothing is to be "
            "adopted. Start a coordinator, and the jobs with empty checkpoint locations"
        )
    newest = max(made, key=lambda past: past.decision, default=None)
    if newest is None or newest.decision != seen.newest_made:
        there = newest.decision if newest is not None else "none"
        known = seen.newest_made if seen.newest_made is not None else "another one"
        raise ReplayRefused(
            f"the newest commit of stream {stream} in the history of the table is {there}, but {known} was "
            "made: its snapshot has expired. Put the snapshot back from a copy of the metadata. Without one, "
            "continue as a new stream with its own commit_user, empty checkpoint locations, and sources that "
            "begin right after the committed rows"
        )
    if any(past.decision > newest.decision for past in ours):
        raise ReplayRefused(
            f"another product has committed to the table as the commit user {user}, with an id above "
            f"{newest.decision}. Continue as a new stream with its own commit_user"
        )
    return newest


def _account(stream: str, newest: PastSnapshot, text: str) -> tuple[Account | None, str]:
    """Return the account of a commit, or the reason for which it has none. Raises ReplayRefused."""
    if not text:
        return None, "it was made by an older release, by `replay repair`, or its regions are too many"
    try:
        account = decode_account(text)
    except UnreadableAccount as error:
        return None, str(error)
    if account.decision > newest.decision:
        return None, f"the table was rolled back, and its properties are those of commit {account.decision}"
    if (account.decision, account.digest) != (newest.decision, newest.digest):
        return None, f"the properties of the table are those of commit {account.decision}"
    if account.stream != stream:
        raise ReplayRefused(
            f"commit {newest.decision} was made by the stream {account.stream}. If this is its former name, "
            f"add --from-stream {account.stream}"
        )
    return account, ""
