"""The committer half of every table format: a commit proves that what it builds on is there."""

import os
from pathlib import Path

import pytest

from sluicegate.lakes.capabilities import OpensNewest
from sluicegate.lakes.port import LakeUnavailable, Published, TableRefused
from tests.contracts.lakes.bases import bases, folder_of
from tests.contracts.lakes.conftest import ALL_TABLES
from tests.contracts.lakes.harness import Lake, with_commits
from tests.lakes.outcomes import is_refused


@pytest.fixture
def folder(lake: Lake, request: pytest.FixtureRequest) -> Path:
    """The folder of the table's files."""
    on_s3 = "s3" in request.node.callspec.params["lake"]
    return folder_of(lake, request.getfixturevalue("s3proxy") if on_s3 else None)


each_table = pytest.mark.parametrize("lake", ALL_TABLES, indirect=True)


@pytest.mark.slow
@each_table
def test_nothing_is_committed_to_a_table_whose_folder_is_away(
    lake: Lake, folder: Path, tmp_path: Path
) -> None:
    """A share was unmounted, or the folder was moved, after the files were checked."""
    stream = with_commits(lake, 1)
    files = stream.committer.check([lake.event([2])])
    head = stream.head(2)
    away = tmp_path / "away"
    os.rename(folder, away)
    for _ in range(2):
        outcome = stream.publish(2, head, files)
        assert is_refused(outcome, again=True), outcome
        assert outcome.reason
        assert not folder.exists()
    with pytest.raises((LakeUnavailable, TableRefused), match=r"ount"):
        lake.committer().inspect()
    assert not folder.exists()
    os.rename(away, folder)
    assert isinstance(stream.publish(2, stream.head(2), files), Published)
    assert lake.ids() == [1, 2]


@each_table
def test_files_of_a_table_that_is_away_are_not_blamed(lake: Lake, folder: Path, tmp_path: Path) -> None:
    """Their region would be excluded, and the advice would be about its files."""
    stream = with_commits(lake, 1)
    event = lake.event([2])
    os.rename(folder, tmp_path / "away")
    with pytest.raises(LakeUnavailable):
        stream.committer.check([event])
    os.rename(tmp_path / "away", folder)
    stream.committer.check([event])


@pytest.mark.slow
@each_table
@pytest.mark.parametrize("again", [True, False], ids=["same-committer", "new-committer"])
def test_nothing_is_committed_on_metadata_that_lacks_a_file(
    lake: Lake, folder: Path, tmp_path: Path, again: bool
) -> None:
    stream = with_commits(lake, 3)
    decision = 4
    for kind in bases(lake, folder):
        file = bases(lake, folder)[kind]
        files = stream.committer.check([lake.event([decision])])
        head = stream.head(decision)
        committer = stream.committer
        if not again:
            committer.close()
            stream.committer = lake.committer()
            stream.committer.inspect()
        os.rename(file, tmp_path / "kept")
        outcome = stream.publish(decision, head, files)
        assert not isinstance(outcome, Published), kind
        os.rename(tmp_path / "kept", file)
        stream.commit(decision, [decision * 10])
        decision += 1
    assert lake.ids() == sorted([1, 2, 3, *(each * 10 for each in range(4, decision))])


@pytest.mark.slow
@each_table
def test_the_newest_snapshot_is_opened(lake: Lake, folder: Path, tmp_path: Path) -> None:
    with_commits(lake, 3)
    maintenance = lake.maintenance()
    assert isinstance(maintenance, OpensNewest)
    assert maintenance.open_newest().problems == ()
    files = [each for each in folder.rglob("*.parquet") if "_delta_log" not in each.parts]
    assert len(files) == 3
    needed = bases(lake, folder)
    # Without its newest version, a log of Delta is that of the version before.
    needed.pop("newest version", None)
    for file in (*needed.values(), *files):
        os.rename(file, tmp_path / "kept")
        try:
            problems = maintenance.open_newest().problems
        except LakeUnavailable as error:
            problems = (str(error),)
        os.rename(tmp_path / "kept", file)
        assert problems, file
        assert "estore" in problems[0] or "ount" in problems[0], problems
    assert maintenance.open_newest().problems == ()
    # A part of a file is no file, either.
    content = files[0].read_bytes()
    files[0].write_bytes(content[:-1])
    assert files[0].name in maintenance.open_newest().problems[0]
