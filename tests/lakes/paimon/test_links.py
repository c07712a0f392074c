"""Links in a table's folder: what they lead to outside of it is in no commit."""

import shutil
from pathlib import Path

import pytest

from sluicegate.lakes.paimon.adapter import ADAPTER
from sluicegate.lakes.port import BadFiles
from sluicegate.lakes.storage_local import LocalStorage
from tests.contracts.lakes.harness import USER, Stream
from tests.contracts.lakes.paimon_lake import PaimonLake
from tests.lakes.outcomes import is_refused


@pytest.mark.parametrize("linked", ["file", "folder"])
def test_what_a_link_leads_out_of_the_table_is_refused(tmp_path: Path, linked: str) -> None:
    lake = PaimonLake(tmp_path / "warehouse")
    event = lake.event([1])
    path = lake.root / event.files[0].path
    inside, outside = path if linked == "file" else path.parent, tmp_path / "outside"
    shutil.move(inside, outside)
    inside.symlink_to(outside)
    stream = Stream(lake)
    head = stream.head(1)
    with pytest.raises(BadFiles, match="out of the table"):
        stream.committer.check([event])
    assert is_refused(stream.publish(1, head, [event]))
    assert lake.ids() == []


def test_a_table_that_stands_behind_a_link_is_as_any_other(tmp_path: Path) -> None:
    lake = PaimonLake(tmp_path / "warehouse")
    link = tmp_path / "link"
    link.symlink_to(lake.root)
    event = lake.event([1])
    committer = ADAPTER.open_committer(ADAPTER.parse_table(str(link)), USER)
    committer.inspect()
    committer.check([event.model_copy(update={"location": link.as_uri()})])


@pytest.mark.parametrize("name", ["x" * 5000, "a\x00b", "a/" * 3000 + "b", "loop/x"])
def test_a_name_that_no_file_can_have_is_of_no_file(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert LocalStorage(str(tmp_path)).size(name) is None
