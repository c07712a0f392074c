"""Checkpoints are made in a process of their own, and a failure of one is no failure of a commit."""

import logging
from pathlib import Path

import pytest

from sluicegate.lakes.delta.checkpointing import Checkpointing, is_due
from sluicegate.lakes.delta.committer import DeltaCommitter
from sluicegate.lakes.delta.log import Log
from sluicegate.lakes.storage_local import LocalStorage
from tests.contracts.lakes.delta_lake import DeltaLake
from tests.contracts.lakes.harness import USER, Stream
from tests.lakes.delta.making import Fields, HandMade, metadata, protocol


def checkpoints(lake: DeltaLake) -> list[int]:
    return sorted(int(path.name[:20]) for path in lake.log.glob("*.checkpoint.parquet"))


@pytest.mark.slow
def test_a_checkpoint_is_made_when_it_is_due(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path, properties={"delta.checkpointInterval": "3"})
    checkpointing = Checkpointing(lake.location)
    stream = Stream(lake, DeltaCommitter(LocalStorage(lake.location), USER, checkpointing))
    for decision in range(1, 8):
        stream.commit(decision, [decision])
        checkpointing.wait()
    assert checkpoints(lake) == [3, 6]
    assert lake.ids() == list(range(1, 8))
    # Nothing is cleaned up: that is left to the owner of the table.
    assert lake.versions() == list(range(8))


@pytest.mark.slow
def test_a_checkpoint_that_fails_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lake = DeltaLake(tmp_path, properties={"delta.checkpointInterval": "1"})
    checkpointing = Checkpointing(str(tmp_path / "elsewhere"))
    stream = Stream(lake, DeltaCommitter(LocalStorage(lake.location), USER, checkpointing))
    with caplog.at_level(logging.WARNING):
        stream.commit(1, [1])
        checkpointing.wait()
    assert "no checkpoint of" in caplog.text
    stream.commit(2, [2])
    checkpointing.wait()


def every(interval: str, **more: str) -> Fields:
    properties = {
        "delta.checkpointInterval": interval,
        **{f"delta.{key}": value for key, value in more.items()},
    }
    return metadata(properties=properties)


@pytest.mark.parametrize(
    ("actions", "due"),
    [
        ((protocol(), every("1")), True),
        ((protocol(), every("0")), False),
        ((protocol(), every("many")), False),
        ((protocol(), metadata()), False),
        ((protocol(["v2Checkpoint"], ["v2Checkpoint"]), every("1", checkpointPolicy="v2")), False),
        ((protocol(["checkpointProtection"]), every("1")), False),
    ],
)
def test_tables_whose_owner_makes_the_checkpoints(
    tmp_path: Path, actions: tuple[Fields, ...], due: bool
) -> None:
    lake = HandMade(tmp_path, *actions)
    lake.put()
    assert is_due(Log(lake.storage(None)).load()) is due
