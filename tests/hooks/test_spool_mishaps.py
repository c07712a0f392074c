"""Spools that are removed under their writers, or on a full disk."""

import errno
import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

from sluicegate.lakes.port import LakeUnavailable
from sluicegate.lakes.spooled import SpooledStorage
from sluicegate.lakes.storages import open_storage
from sluicegate.writer_hooks.upload.spool import make_spool


def test_a_spool_that_is_removed_under_a_writer_is_not_made_again_by_it(tmp_path: Path) -> None:
    """It would have the permissions of the umask, and be refused from then on."""
    folder = str(tmp_path / "spool")
    spool = make_spool(folder)
    os.close(spool.begin("one"))
    storage = SpooledStorage(open_storage((tmp_path / "t").as_uri()), spool.files("one"))
    storage.write("a=1/b=2", {"x.parquet": b"rows"})
    shutil.rmtree(folder)
    with pytest.raises(LakeUnavailable, match="to the spool"):
        storage.write("a=1/b=2", {"y.parquet": b"rows"})
    with pytest.raises(FileNotFoundError):
        spool.begin("two")
    assert not Path(folder).exists()
    os.close(make_spool(folder).begin("three"))


def test_an_uploader_works_on_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    spool = make_spool(str(tmp_path / "spool"))
    monkeypatch.setattr(os, "pwrite", full)
    with spool.uploading() as mine:
        assert mine
        assert spool.has_uploader()
    assert not spool.has_uploader()
