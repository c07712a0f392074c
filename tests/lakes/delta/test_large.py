"""Commits of very many files: the version is never in memory as a whole."""

import os
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from sluicegate.lakes.committer import DIGEST_SIZE
from sluicegate.lakes.delta.committer import DeltaCommitter
from sluicegate.lakes.delta.entries import Entries
from sluicegate.lakes.delta.log import Log
from sluicegate.lakes.port import Checked, CommitRequest, Premises, Published
from sluicegate.lakes.storage_local import LocalStorage
from tests.contracts.lakes.delta_lake import DeltaLake
from tests.contracts.lakes.harness import USER

EVENTS = 200
FILES = 1_000
LINE = b'{"add":{"path":"%032d.parquet","size":1,"stats":"' + b"0123456789" * 90 + b'"}}'
MOST = 120 << 20
"""Bytes of memory for a version of 190 MB."""


class Many(Sequence[Checked]):
    """Events that are made when they are asked for, as the coordinator reads them."""

    def __init__(self, premises: Premises) -> None:
        self._premises = premises

    def __len__(self) -> int:
        return EVENTS

    def __iter__(self) -> Iterator[Checked]:
        return map(self.__getitem__, range(EVENTS))

    def __getitem__(self, index: int) -> Checked:  # type: ignore[override]
        lines = b"\n".join([LINE % (index * FILES + number) for number in range(FILES)])
        content = Entries(lines, (1,) * FILES)
        return Checked(
            self._premises, FILES, FILES, FILES, os.urandom(DIGEST_SIZE * FILES), content, len(lines)
        )


@pytest.mark.slow
def test_a_large_version_takes_less_memory_than_it_has_bytes(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path)
    committer = DeltaCommitter(LocalStorage(lake.location), USER)
    state = committer.inspect()
    tracemalloc.start()
    try:
        events = Many(committer.premises())
        outcome = committer.publish(CommitRequest(1, "digest", state.head, None, events))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(outcome, Published)
    path = lake.log / f"{1:020d}.json"
    assert path.stat().st_size > EVENTS * FILES * len(LINE)
    assert peak < MOST
    # What was put is what is read.
    there = Log(lake.storage(None)).version(1)
    assert there is not None
    assert there.ref == outcome.snapshot
    with path.open("rb") as version:
        assert sum(line.startswith(b'{"add"') for line in version) == EVENTS * FILES
