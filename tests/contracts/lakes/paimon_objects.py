"""Paimon in an object store under the contract, with pypaimon's own access as the other product."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

from sluicegate.lakes.port import LakeUnavailable
from sluicegate.lakes.storage import Content, Storage, Uncertain
from sluicegate.lakes.storage_objects import Clients, ObjectStorage, connect
from tests.contracts.lakes.harness import Fault, Killed
from tests.contracts.lakes.paimon_lake import PaimonLake
from tests.s3proxy import BUCKET, S3Proxy

PAIMON: Final = ("paimon", "paimon-fixed-buckets", pytest.param("paimon-on-s3", marks=pytest.mark.s3))
"""Names of the kinds of Paimon's tables, as parameters of fixtures."""


class FaultyObjects(ObjectStorage):
    """Fails once: at the put that decides a commit, or at the manifests before it."""

    def __init__(self, uri: str, fault: Fault | None) -> None:
        super().__init__(uri, Clients(connect(uri)))
        self.fault = fault

    def write(self, folder: str, files: Mapping[str, bytes]) -> None:
        super().write(folder, files)
        if self.fault is Fault.AWAY:
            self.fault = None
            raise LakeUnavailable("injected")

    def put_if_absent(self, name: str, content: Content, draft: str = "") -> bool:
        fault, self.fault = self.fault, None
        put = fault is not Fault.LOST and super().put_if_absent(name, content, draft)
        if fault is not None:
            raise Uncertain("injected")
        return put


class ThawingObjects(ObjectStorage):
    """Stands still at the put that decides a commit, goes on, and is killed right behind it."""

    def __init__(self, uri: str, meanwhile: Callable[[], None]) -> None:
        super().__init__(uri, Clients(connect(uri)))
        self._meanwhile = meanwhile

    def put_if_absent(self, name: str, content: Content, draft: str = "") -> bool:
        self._meanwhile()
        super().put_if_absent(name, content, draft)
        raise Killed


class PaimonOnS3(PaimonLake):
    """A table in an S3 server whose variables are in the environment."""

    def __init__(
        self, warehouse: str, environment: Mapping[str, str], options: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(warehouse, options=options, access=access(environment))

    def faulty(self, fault: Fault | None) -> Storage:
        return FaultyObjects(self.location, fault)

    def thawing(self, meanwhile: Callable[[], None]) -> Storage:
        return ThawingObjects(self.location, meanwhile)


def access(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the options with which pypaimon uses the server of these variables."""
    return {
        "s3.endpoint": environment["AWS_ENDPOINT_URL"],
        "s3.access-key": environment["AWS_ACCESS_KEY_ID"],
        "s3.secret-key": environment["AWS_SECRET_ACCESS_KEY"],
        "s3.region": environment["AWS_REGION"],
        "s3.path-style-access": "true",
    }


def paimon_of(name: str, request: pytest.FixtureRequest, folder: Path) -> PaimonLake:
    """Return a fresh Paimon table."""
    if name == "paimon-on-s3":
        server: S3Proxy = request.getfixturevalue("s3proxy")
        monkeypatch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
        for variable, value in server.environment().items():
            monkeypatch.setenv(variable, value)
        unique: str = request.getfixturevalue("unique")
        return PaimonOnS3(f"s3://{BUCKET}/{unique}", server.environment())
    fixed = {"bucket": "3", "bucket-key": "id"} if name != "paimon" else {}
    return PaimonLake(folder, options=fixed)
