"""Drafts: the metadata files of a publication, which may never become visible.

A name is `<kind>-<owner>-<decision>-<coordinator>-<attempt>`, with an ending. The owner is a digest of table,
branch and commit user. So two streams of one table have different ones, and so have two tables in one folder:
a catalog may give a new table the folder that a renamed one keeps. The coordinator is in its log line
`listening`. The attempt is random. So a file that a dead coordinator left still shows its decision
(docs/decisions.md, 53). A publication changes no name: other metadata of the table shows what is published.
"""

import hashlib
import re
import secrets
import uuid
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from sluicegate.lakes.storage import Storage

COORDINATOR: Final = secrets.token_hex(6)
"""Digits of this process in the names of its drafts."""
_HIGHEST: Final = 10**12
_KINDS: Final = r"manifest|manifest-list|snap-(?P<snapshot>[0-9]+)-0|\.[^/]+\.draft"
_NAME: Final = re.compile(
    rf"(?:{_KINDS})-(?P<owner>[0-9a-f]{{16}})-(?P<decision>[0-9]{{1,19}})-(?P<coordinator>[0-9a-f]{{12}})-"
    r"(?P<attempt>[0-9a-f]{32})[-.][^/]+"
)
_METADATA: Final = re.compile(
    r"[0-9]+-([0-9a-f]{8})-([0-9a-f]{4})-8([0-9a-f]{3})-([89ab][0-9a-f]{3})-([0-9]{12})(?:\.gz)?\.metadata\.json"
)


class StatedDraft(NamedTuple):
    """The parts of a draft's name. A metadata file of Iceberg has the shorter ones."""

    owner: str
    """As `draft_owner` returns it, or its first 8 digits."""
    decision: int
    coordinator: str
    """12 digits, or the first 4."""
    attempt: str
    """7 of its digits."""
    snapshot: str = ""
    """Identity of the snapshot of this attempt, in the name of Iceberg's list of manifests alone."""

    @property
    def publication(self) -> tuple[str, int, str]:
        """Return what the names of all drafts of one attempt have alike."""
        return self.owner[:8], self.decision, self.attempt


class DraftNames(NamedTuple):
    """Names for the drafts of one attempt to publish a decision."""

    owner: str
    decision: int
    attempt: str

    def name(self, kind: str) -> str:
        """Return the name of a draft, without its ending. The endings of one kind must differ."""
        return f"{kind}-{self.owner}-{self.decision}-{COORDINATOR}-{self.attempt}"

    def uuid(self) -> str:
        """Return the same as a UUID, for a file whose name must have one.

        It is of version 8, whose digits have no given meaning. The decision is in decimal digits. If they are
        too few, the UUID is a random one, and such a draft is not recognized.
        """
        if self.decision >= _HIGHEST:
            return str(uuid.uuid4())
        random = f"8{self.attempt[13:16]}-{self.attempt[16:20]}"
        return f"{self.owner[:8]}-{COORDINATOR[:4]}-{random}-{self.decision:012}"


def draft_owner(table: str, branch: str, commit_user: str) -> str:
    """Return the owner that names of drafts state.

    `table` is the identity of a table, and `branch` is empty for a format without branches.
    """
    return hashlib.sha256(f"{table}\n{branch}\n{commit_user}".encode()).hexdigest()[:16]


def draft_names(table: str, branch: str, commit_user: str, decision: int) -> DraftNames:
    """Return names that no other attempt has."""
    return DraftNames(draft_owner(table, branch, commit_user), decision, uuid.uuid4().hex)


def stated_draft(name: str) -> StatedDraft | None:
    """Return the parts of a draft's name; None for a file of another program, or of no decision."""
    if (found := _NAME.fullmatch(name)) is not None:
        owner, decision, coordinator = found["owner"], int(found["decision"]), found["coordinator"]
        return StatedDraft(owner, decision, coordinator, found["attempt"][13:20], found["snapshot"] or "")
    if (found := _METADATA.fullmatch(name)) is not None:
        return StatedDraft(found[1], int(found[5]), found[2], found[3] + found[4])
    return None


def is_draft(path: str, folders: Sequence[str]) -> bool:
    """Return True if a path is that of a draft in one of these folders."""
    folder, _, name = path.rpartition("/")
    return folder in folders and stated_draft(name) is not None


def draft_files(storage: Storage, folders: Sequence[str]) -> Iterator[str]:
    """Yield the drafts in these folders. Raises LakeUnavailable."""
    for folder in folders:
        yield from (f"{folder}/{name}" for name in storage.names(folder) if stated_draft(name) is not None)
