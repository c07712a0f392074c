"""The account of a commit: the positions of its stream, as a text that the table keeps with the commit.

With it, a stream continues from its table alone if Kafka is lost. Nothing else reads it: the log decides.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Final

import cramjam
from pydantic import TypeAdapter, ValidationError

from sluicegate.coordinator.core import undo
from sluicegate.coordinator.core.state import (
    AssignmentState,
    Former,
    Light,
    LogState,
    RegionPhase,
    RegionState,
)
from sluicegate.events.models import KnownTable, TableVersion

ACCOUNT_VERSION: Final = 1
_MOST: Final = 64 << 10
"""Characters of an account. Tables keep one with each commit, and readers load it with the snapshot."""
_MOST_JSON: Final = 8 << 20
"""Bytes before the compression. Nothing larger is read or written."""
_KEPT: Final = 100
"""Ended incarnations that are named. Registrations of older ones are refused for their base."""


_OF_A_REGION: Final = (
    *("position", "source_offsets", "offsets_kind", "watermark", "listeners", "fallbacks"),
)
"""Fields of a region that an account has."""


class Account(Light):
    """The positions of a stream after one commit."""

    version: int
    stream: str
    decision: int
    digest: str
    """Digest of the commit. It binds the account to its commit."""
    assignment: AssignmentState | None = None
    former: Former | None = None
    """The assignment before. Without it, a withdrawal would lose the positions of its regions."""
    withdrawn: int = -1
    watermark: int | None = None
    tables: Mapping[str, KnownTable] = {}
    """The registry of the further tables. The snapshots of this commit's own are unknown here."""
    regions: Mapping[str, RegionState] = {}
    """Regions as of the commit. One that has not ended has the phase of one that has to register."""
    ended: Sequence[str] = ()
    """Incarnations that may never live again: the newest of each region, and the last that had ended."""


class UnreadableAccount(ValueError):
    """A text is no account that this release can read; the message has the reason."""


_ACCOUNT: Final = TypeAdapter(Account)


def account_of(stream: str, state: LogState, digest: str) -> Account | None:
    """Return the account of the unresolved decision; None if there is none.

    `digest` is that of the commit. If it is another one than the decision's, the commit is that of a revert.
    """
    made = state.unresolved
    if made is None:
        return None
    # Only the rules of a revert know what it undoes: phases of removed regions, the assignment before.
    after = state if digest == made.digest else undo.undone(stream, state, made)
    return account_after(stream, after, digest)


def account_after(stream: str, state: LogState, digest: str) -> Account:
    """Return the account of the newest decision, in the state after its outcome."""
    regions, former = state.regions, state.former
    everyone = [*regions.values(), *(former.regions.values() if former is not None else ())]
    lives = [each.incarnation.id for each in everyone if each.incarnation is not None]
    return Account(
        version=ACCOUNT_VERSION,
        stream=stream,
        decision=state.decided,
        digest=digest,
        assignment=state.assignment.model_copy() if state.assignment is not None else None,
        former=former.model_copy(update={"regions": _regions(former.regions)}) if former else None,
        withdrawn=state.withdrawn,
        watermark=state.watermark,
        tables=_tables(state),
        regions=_regions(regions),
        ended=list(dict.fromkeys([*list(state.ended)[-_KEPT:], *lives])),
    )


def _tables(state: LogState) -> dict[str, KnownTable]:
    """Return the registry after the unresolved decision, if there is one."""
    made = state.unresolved
    touched = made.tables.keys() if made is not None else ()
    return {
        name: each.model_copy(update={"newest": TableVersion(decision=state.decided)})
        if name in touched
        else each
        for name, each in state.tables.items()
    }


def _regions(regions: Mapping[str, RegionState]) -> dict[str, RegionState]:
    """Return what a successor needs of the regions, after an end of all their incarnations."""
    return {
        name: RegionState(
            phase=each.phase if each.has_ended else RegionPhase.WAITING,
            **{field: getattr(each, field) for field in _OF_A_REGION},
        )
        for name, each in regions.items()
    }


def encode_account(account: Account) -> str:
    """Return the text for the table; empty if it would be too large even without the source offsets."""
    text = _packed(account)
    if len(text) > _MOST:
        former = account.former
        if former is not None:
            former = former.model_copy(update={"regions": _bare(former.regions)})
        text = _packed(account.model_copy(update={"regions": _bare(account.regions), "former": former}))
    return text if len(text) <= _MOST else ""


def _bare(regions: Mapping[str, RegionState]) -> dict[str, RegionState]:
    return {name: each.model_copy(update={"source_offsets": None}) for name, each in regions.items()}


def _packed(account: Account) -> str:
    values = _ACCOUNT.dump_json(account, exclude_defaults=True)
    return (
        base64.b64encode(bytes(cramjam.zstd.compress(values))).decode() if len(values) <= _MOST_JSON else ""
    )


def decode_account(text: str) -> Account:
    """Read an account. Raises UnreadableAccount."""
    try:
        room = bytearray(_MOST_JSON)
        size = cramjam.zstd.decompress_into(base64.b64decode(text, validate=True), room)
        values = bytes(room[:size])
        version = _Versioned.model_validate_json(values).version
        if version == ACCOUNT_VERSION:
            return _ACCOUNT.validate_json(values)
    except (binascii.Error, cramjam.DecompressionError, ValidationError) as error:
        raise UnreadableAccount(f"it is damaged ({type(error).__name__})") from error
    raise UnreadableAccount(
        f"it has version {version}, and this release reads {ACCOUNT_VERSION}. Run this command with the "
        "release whose coordinators made the last commit, or a newer one"
    )


class _Versioned(Light):
    version: int
