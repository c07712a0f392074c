"""A folder in an S3 server for tables of Iceberg, with the access of other products to it."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.s3proxy import S3Proxy


@dataclass(frozen=True, slots=True)
class S3Folder:
    """A folder in a server whose variables are in the environment. The server keeps its objects in files."""

    server: S3Proxy
    name: str

    @property
    def uri(self) -> str:
        """Location, as tables have it."""
        return f"s3://{self.server.bucket.name}/{self.name}"

    @property
    def path(self) -> Path:
        """The folder in the server's files."""
        return self.server.bucket / self.name

    @property
    def access(self) -> dict[str, str]:
        """Properties with which pyiceberg reaches it."""
        variables = self.server.environment()
        return {
            "s3.endpoint": variables["AWS_ENDPOINT_URL"],
            "s3.access-key-id": variables["AWS_ACCESS_KEY_ID"],
            "s3.secret-access-key": variables["AWS_SECRET_ACCESS_KEY"],
            "s3.region": variables["AWS_REGION"],
        }

    def path_of(self, location: str) -> Path:
        """Return the file of an object."""
        return self.server.bucket.parent / location.partition("://")[2]


def s3_folder(request: pytest.FixtureRequest) -> S3Folder:
    """Return a folder that no other test uses, and put the variables of its server into the environment."""
    server: S3Proxy = request.getfixturevalue("s3proxy")
    monkeypatch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    for variable, value in server.environment().items():
        monkeypatch.setenv(variable, value)
    return S3Folder(server, request.getfixturevalue("unique"))
