"""Decisions in a Delta table: how a commit of ours carries one, and how it is found again.

Each commit has transactions, all with one time. Transactions are part of the table's state, so they survive
the clean-up of the log inside checkpoints:

- the decision under the commit user, as Delta's own sinks write it,
- a number of the digest under `<user>.digest`,
- the mark in parts under `<user>.mark.<n>`: decision, version, table and whole digest,
- the table's watermark under `sluicegate.watermark`, for all users together.

Another product that commits under the name of the user replaces the first one alone.
"""

import re
import struct
from collections.abc import Iterator, Mapping
from hashlib import sha256
from itertools import count
from typing import Final, NamedTuple

from sluicegate.lakes.delta.actions import WATERMARK, Txn
from sluicegate.lakes.delta.log import State, Version
from sluicegate.lakes.history import PastSnapshot

DECISION: Final = "sluicegate.decision"
DIGEST: Final = "sluicegate.digest"
ACCOUNT: Final = "sluicegate.account"
RESERVED: Final = re.compile(r".*\.(digest|mark\.[0-9]+)|sluicegate\.watermark", re.DOTALL)
"""Names that are no commit users, since transactions of other users have them."""

_PART: Final = 7
"""Bytes in the version of a transaction, which is a signed number of 64 bits."""
_HEAD: Final = struct.Struct(">HQQQ?")
"""Length of the digest, decision, version, number of the table; True for a digest in hexadecimal digits."""


class Mark(NamedTuple):
    """The newest commit of a user."""

    decision: int
    digest: str
    version: int
    """Of the table that the commit made."""
    time_ms: int
    """Time of its transactions, in milliseconds since the Unix epoch. Each commit of a user has a later one.
    """


def number_of(text: str) -> int:
    """Return the first 63 bits of a hash: a transaction's version is a signed number."""
    return int.from_bytes(sha256(text.encode()).digest()[:8], "big") >> 1


def transactions(user: str, mark: Mark, table: str, watermark: int | None) -> list[dict[str, object]]:
    """Return the transactions of a commit to the table with this identity."""
    content = _packed(mark, table)
    parts = [content[start : start + _PART].ljust(_PART, b"\0") for start in range(0, len(content), _PART)]
    pairs = [
        (user, mark.decision),
        (f"{user}.digest", number_of(mark.digest)),
        *((f"{user}.mark.{number}", int.from_bytes(part, "big")) for number, part in enumerate(parts)),
        *([(WATERMARK, watermark)] if watermark is not None else []),
    ]
    return [
        {"txn": {"appId": app, "version": version, "lastUpdated": mark.time_ms}} for app, version in pairs
    ]


def _packed(mark: Mark, table: str) -> bytes:
    digits = re.fullmatch(r"(?:[0-9a-f]{2})+", mark.digest) is not None
    digest = bytes.fromhex(mark.digest) if digits else mark.digest.encode()
    return _HEAD.pack(len(digest), mark.decision, mark.version, number_of(table), digits) + digest


def mark_of(state: State, user: str) -> Mark | None:
    """Return the mark of a user's newest commit to this table, None if its transactions do not prove one."""
    number = state.txns.get(f"{user}.digest")
    if number is None or number.last_updated is None:
        return None
    content = b"".join(_parts(state.txns, user, number.last_updated))
    try:
        length, decision, version, table, digits = _HEAD.unpack_from(content)
        digest = content[_HEAD.size : _HEAD.size + length]
        text = digest.hex() if digits else digest.decode()
    except (struct.error, ValueError):
        return None
    # A clone of a table has its transactions, too.
    right = number_of(text) == number.version and table == number_of(state.metadata.id)
    if not right or version > state.version:
        return None
    return Mark(decision, text, version, number.last_updated)


def _parts(txns: Mapping[str, Txn], user: str, time_ms: int) -> Iterator[bytes]:
    """Yield the parts of a mark. Parts of an older, longer mark have another time."""
    for number in count():
        part = txns.get(f"{user}.mark.{number}")
        if part is None or part.last_updated != time_ms or not 0 <= part.version < 1 << 8 * _PART:
            return
        yield part.version.to_bytes(_PART, "big")


def past_of(version: Version, user: str | None) -> PastSnapshot:
    """Return the commit of a version. With transactions of several users, the given user's counts first."""
    txns, text = version.actions.txns, version.actions.info.get(DIGEST)
    digest = text if isinstance(text, str) else ""
    ours = [app for app in txns if digest and _is_ours(txns, app, number_of(digest))]
    if user is not None and user in txns:
        made_by = user
    elif ours or txns:
        made_by = next(iter(ours or txns))
    else:
        return PastSnapshot(version.ref, "", 0, "")
    return PastSnapshot(version.ref, made_by, txns[made_by].version, digest if made_by in ours else "")


def _is_ours(txns: Mapping[str, Txn], app: str, number: int) -> bool:
    made, digest = txns[app], txns.get(f"{app}.digest")
    if digest is None or digest.version != number or made.last_updated is None:
        return False
    return made.last_updated == digest.last_updated
