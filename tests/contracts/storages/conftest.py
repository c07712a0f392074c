"""Every storage of tables: local files, obstore on them, real servers of S3 and HDFS, a double, emulators."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from obstore.store import LocalStore

from sluicegate.lakes.storage import Storage
from sluicegate.lakes.storage_objects import Clients, ObjectStorage, Stores
from sluicegate.lakes.storages import open_storage
from tests.doubles.s3 import BUCKET
from tests.emulators import EMULATORS, emulator
from tests.s3proxy import S3Proxy


@dataclass(frozen=True, slots=True)
class Place:
    """Where folders can be made; `files` holds them if obstore works on local files."""

    root: str
    files: Path | None = None

    def open(self, folder: str = "numbers") -> Storage:
        """Open a folder, as a process of its own does."""
        if self.files is None:
            storage = open_storage(f"{self.root}/{folder}")
        else:
            store = LocalStore(str(self.files))
            storage = ObjectStorage(f"{self.root}/{folder}", Clients(Stores(store, store)))
        storage.make_folder()
        return storage


@pytest.fixture(
    params=[
        "local",
        "obstore-on-files",
        "s3-double",
        pytest.param("s3proxy", marks=pytest.mark.s3),
        pytest.param("hdfs", marks=pytest.mark.hdfs),
        *EMULATORS,
    ]
)
def place(
    request: pytest.FixtureRequest, tmp_path: Path, unique: str, monkeypatch: pytest.MonkeyPatch
) -> Place:
    if request.param == "local":
        return Place(str(tmp_path))
    if request.param == "obstore-on-files":
        return Place(f"s3://{BUCKET}/{unique}", tmp_path)
    if request.param == "hdfs":
        return Place(f"{request.getfixturevalue('hdfs').uri}/{unique}")
    if request.param.startswith("emulator"):
        return Place(f"{emulator(request, request.param).uri}/{unique}")
    if request.param == "s3-double":
        request.getfixturevalue("s3_double")
    else:
        server: S3Proxy = request.getfixturevalue("s3proxy")
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
    return Place(f"s3://{BUCKET}/{unique}")


@pytest.fixture
def storage(place: Place) -> Storage:
    return place.open()
