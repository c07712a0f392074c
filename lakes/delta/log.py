"""The log of a Delta table: its files, the state of the table at its newest version, and later versions.

The table is never loaded: a state has no data files, and a new version costs one read.
"""

import hashlib
import re
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from sluicegate.lakes.delta.actions import Actions, Malformed, Metadata, Protocol, Txn, read_actions
from sluicegate.lakes.delta.checkpoints import FOLDER, Checkpoint, Gone, read_checkpoint
from sluicegate.lakes.port import LakeUnavailable, SnapshotRef
from sluicegate.lakes.storage import Storage

LAST_CHECKPOINT: Final = "_last_checkpoint"

_COMMIT: Final = re.compile(r"([0-9]{20})\.json")
_SINGLE: Final = re.compile(r"([0-9]{20})\.checkpoint(?:\.[0-9A-Za-z-]{36}\.(?:parquet|json)|\.parquet)")
_PART: Final = re.compile(r"([0-9]{20})\.checkpoint\.([0-9]{10})\.([0-9]{10})\.parquet")
_TRIES: Final = 3
"""Listings of a log that changes while it is listed."""


class NoTable(LakeUnavailable):
    """There is no Delta log at the location."""


class Listing(NamedTuple):
    """The files of a log."""

    commits: tuple[int, ...]
    """Versions with a commit file, in order."""
    checkpoints: tuple[Checkpoint, ...]
    """Complete ones, the newest first."""

    @property
    def oldest(self) -> int | None:
        """The version where the history begins, None if the log has no beginning.

        Clean-up deletes everything before a checkpoint. A commit file before the oldest checkpoint was put
        too late, by a process that stood still; no reader uses it.
        """
        if self.commits and self.commits[0] == 0:
            return 0
        return min((each.version for each in self.checkpoints), default=None)


@dataclass(frozen=True, slots=True)
class Version:
    """A commit file. Its digest identifies it, because it never changes."""

    ref: SnapshotRef
    actions: Actions
    size: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class State:
    """The table at one version, without its data files."""

    head: Version
    protocol: Protocol
    metadata: Metadata
    txns: dict[str, Txn]
    domains: dict[str, str | None]

    @property
    def version(self) -> int:
        return self.head.ref.id

    def after(self, version: Version) -> "State":
        """Return the state after the next version."""
        new = version.actions
        return replace(
            self,
            head=version,
            protocol=new.protocol or self.protocol,
            metadata=new.metadata or self.metadata,
            txns={**self.txns, **new.txns} if new.txns else self.txns,
            domains={**self.domains, **new.domains} if new.domains else self.domains,
        )


class Log:
    """Reader of one log."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def exists(self) -> bool:
        """Return True if the table has a log. Raises LakeUnavailable."""
        found = self.listing()
        return bool(found.commits or found.checkpoints)

    def listing(self) -> Listing:
        """List the log. Raises LakeUnavailable."""
        names = self._storage.names(FOLDER)
        commits = sorted(int(match[1]) for name in names if (match := _COMMIT.fullmatch(name)))
        return Listing(tuple(commits), tuple(sorted(_checkpoints(names), reverse=True)))

    def version(self, number: int) -> Version | None:
        """Return a version, None if it has no commit file (any more). Raises LakeUnavailable."""
        name = commit_name(number)
        raw = self._storage.read(name) if number >= 0 else None
        if raw is None:
            return None
        try:
            actions = read_actions(raw)
        except Malformed as error:
            raise self._damaged(f"{name} is no commit of Delta: {error}") from error
        identity = hashlib.sha256(raw).hexdigest()[:32]
        return Version(SnapshotRef(number, identity), actions, len(raw))

    def tail(self, known: State) -> State | None:
        """Return the newest state from a known one; None if the known one is not in the log any more.

        Raises LakeUnavailable.
        """
        there = self.version(known.version)
        if there is None or there.ref != known.head.ref:
            return None
        state = known
        while (following := self.version(state.version + 1)) is not None:
            state = state.after(following)
        return state

    def load(self) -> State:
        """Return the newest state. Raises NoTable, or LakeUnavailable if the log is damaged."""
        problem = ""
        # Clean-up and commits may change the log between its listing and the reading of a file.
        for _ in range(_TRIES):
            listing = self.listing()
            if not listing.commits and not listing.checkpoints:
                raise NoTable(
                    f"no Delta table at {self._storage.uri}: it has no log; create the table there first, "
                    "mount its storage, or correct the table's location"
                )
            try:
                return self._replay(listing)
            except (Gone, Malformed) as error:
                problem = str(error)
        raise self._damaged(problem)

    def _replay(self, listing: Listing) -> State:
        """Read the newest usable checkpoint, and all versions after it. Raises Gone or Malformed."""
        newest = max((*listing.commits, *(each.version for each in listing.checkpoints)))
        found: Actions | None = None
        following = 0
        for checkpoint in listing.checkpoints:
            try:
                found = read_checkpoint(self._storage, checkpoint)
            except (Gone, Malformed):
                # An older one, with all versions after it, leads to the same state.
                continue
            following = checkpoint.version + 1
            break
        head: Version | None = None
        found = found or Actions()
        # The commit file of the checkpoint's own version gives the identity of the head.
        for number in range(max(following - 1, 0), newest + 1):
            head = self.version(number)
            if head is None:
                raise Gone(f"the commit file of version {number} is missing")
            if number >= following:
                _fold(found, head.actions)
        if head is None or found.protocol is None or found.metadata is None:
            raise Malformed("the log has no protocol or no metadata")
        return State(head, found.protocol, found.metadata, found.txns, found.domains)

    def _damaged(self, problem: str) -> LakeUnavailable:
        return LakeUnavailable(
            f"the Delta log of {self._storage.uri} cannot be read: {problem}. Restore that file of its folder "
            f"{FOLDER} from a backup"
        )


def commit_name(number: int) -> str:
    """Return the name of a version's commit file, relative to the table."""
    return f"{FOLDER}/{number:020d}.json"


def _fold(before: Actions, new: Actions) -> None:
    before.protocol = new.protocol or before.protocol
    before.metadata = new.metadata or before.metadata
    before.txns |= new.txns
    before.domains |= new.domains


def _checkpoints(names: list[str]) -> list[Checkpoint]:
    """Return the complete checkpoints among the names. One that lacks a part is none."""
    found = []
    parts: dict[tuple[int, int], dict[int, str]] = {}
    for name in names:
        if single := _SINGLE.fullmatch(name):
            found.append(Checkpoint(int(single[1]), (name,)))
        elif part := _PART.fullmatch(name):
            parts.setdefault((int(part[1]), int(part[3])), {})[int(part[2])] = name
    for (version, number), there in parts.items():
        if there.keys() == set(range(1, number + 1)):
            found.append(Checkpoint(version, tuple(there[each] for each in range(1, number + 1))))
    return found
