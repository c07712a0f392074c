"""A function of the user sees a file before its upload, and must not change it."""

from pathlib import Path
from unittest.mock import patch

import pytest

from sluicegate.events.models import Assignment
from sluicegate.writer_hooks.options import Uploads
from sluicegate.writer_hooks.region import KafkaSettings, Region
from sluicegate.writer_hooks.upload import uploader
from sluicegate.writer_hooks.upload.spool import Lost, make_spool, read_entry
from tests.hooks.test_spool import enter


def _change(function: str, local: str, uri: str, **rest: object) -> None:
    Path(local).write_bytes(b"other rows")


def test_a_file_that_the_function_changes_is_not_uploaded(tmp_path: Path) -> None:
    """The event has the size and the statistics of the rows that the task has written."""
    spool, table = make_spool(str(tmp_path / "spool")), tmp_path / "table"
    kafka = KafkaSettings(bootstrap_servers="127.0.0.1:1")
    region = Region("flights", "r1", kafka, Assignment(number=0, regions=("r1",)))
    name = enter(spool, region, str(table), uploads=Uploads(before_publish="scans:scan"))
    entry = read_entry(spool, name)
    assert entry is not None
    with (
        patch.object(uploader, "call_before_publish", _change),
        patch.object(uploader, "_publish", lambda *_: None),
        pytest.raises(Lost, match="has other content than its task has written"),
    ):
        uploader.send(spool, name, entry, uploader.Credentials(), set())
    assert not [each for each in table.rglob("*") if each.is_file()]
