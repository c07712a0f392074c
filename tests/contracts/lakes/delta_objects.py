"""Delta in an object store under the contract, with deltalake's own access as the other product."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from sluicegate.lakes.port import LakeUnavailable
from sluicegate.lakes.storage import Content, Storage
from tests.contracts.lakes.delta_lake import DeltaLake
from tests.contracts.lakes.harness import Fault
from tests.contracts.lakes.paimon_objects import FaultyObjects
from tests.s3proxy import S3Proxy

DELTA: Final = ("delta", pytest.param("delta-on-s3", marks=pytest.mark.s3))
"""Names of the kinds of Delta's tables, as parameters of fixtures."""


class FaultyLog(FaultyObjects):
    """Fails once, at the put that decides a commit."""

    def put_if_absent(self, name: str, content: Content, draft: str = "") -> bool:
        if self.fault is Fault.AWAY:
            self.fault = None
            raise LakeUnavailable("injected")
        return super().put_if_absent(name, content, draft)


class DeltaOnS3(DeltaLake):
    """A table in an S3 server whose variables are in the environment.

    The server keeps its objects in files. So logs are cut and lost in its folder.
    """

    def __init__(self, bucket: Path, name: str, environment: Mapping[str, str]) -> None:
        self._uri = f"s3://{bucket.name}/{name}"
        self._environment = environment
        super().__init__(bucket / name)

    def place_of(self, folder: Path) -> str:
        return f"{self._uri}/numbers"

    @property
    def access(self) -> dict[str, str]:
        return {**self._environment, "aws_conditional_put": "etag"}

    def storage(self, fault: Fault | None) -> Storage:
        return FaultyLog(self.location, fault)


def delta_of(name: str, request: pytest.FixtureRequest, folder: Path) -> DeltaLake:
    """Return a fresh table of a kind: on files, or on a server of S3 that the environment names then."""
    if name == "delta":
        return DeltaLake(folder)
    server: S3Proxy = request.getfixturevalue("s3proxy")
    unique: str = request.getfixturevalue("unique")
    monkeypatch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    for variable, value in server.environment().items():
        monkeypatch.setenv(variable, value)
    return DeltaOnS3(server.bucket, unique, server.environment())
