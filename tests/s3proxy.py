"""A real S3 server as a child process: s3proxy, with its objects in files.

Of the servers that run without a container, it is the one whose conditional puts hold in a race.
"""

import http.client
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Final

from sluicegate.cli.local.jars import fetched_jars, find_java
from sluicegate.cli.local.process import LOOPBACK
from sluicegate.cli.local.servers import EmbeddedServer

MAIN: Final = "s3proxy-4.1.0-jar-with-dependencies.jar"
BUCKET: Final = "lake"
ACCESS_KEY: Final = "access-of-s3proxy"
SECRET_KEY: Final = "secret-of-s3proxy"  # noqa: S105


def command(properties: Path) -> list[str]:
    """Return the command of the server. The first call of each user fetches it."""
    java = find_java()
    (jar,) = fetched_jars("S3Proxy", Path(__file__).with_name("s3proxy.jars"))
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return [str(java.executable), *options, "-jar", str(jar), "--properties", str(properties)]


class S3Proxy(EmbeddedServer):
    """One server with one bucket, path style, with signatures of version 4."""

    name: ClassVar[str] = "S3Proxy"
    start_seconds: ClassVar[float] = 300.0
    stop_seconds: ClassVar[float] = 30.0
    poll_seconds: ClassVar[float] = 0.05

    def __init__(self, *, is_open: bool = False) -> None:
        """Make a server. `is_open`: it checks no signatures, since a guard before it looks at the keys."""
        super().__init__()
        self._is_open = is_open

    @property
    def endpoint(self) -> str:
        """Address for clients."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def bucket(self) -> Path:
        """Folder of the bucket, in which each object is a file."""
        return self.data_dir / "objects" / BUCKET

    def environment(self) -> dict[str, str]:
        """Return the variables with which a process uses this server."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        }

    def _prepare(self) -> Sequence[str]:
        # A folder of the base directory is a bucket.
        self.bucket.mkdir(parents=True, exist_ok=True)
        properties = {
            "s3proxy.endpoint": self.endpoint,
            "s3proxy.authorization": "none" if self._is_open else "aws-v4",
            "s3proxy.identity": ACCESS_KEY,
            "s3proxy.credential": SECRET_KEY,
            # It has no session tokens.
            "s3proxy.ignore-unknown-headers": str(self._is_open).lower(),
            "jclouds.provider": "filesystem-nio2",
            "jclouds.filesystem.basedir": str(self.bucket.parent),
        }
        path = self.data_dir / "s3proxy.conf"
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()), encoding="utf-8")
        return command(path)

    def _ready(self, pid: int) -> bool:
        try:
            probe = urllib.request.urlopen(f"{self.endpoint}/", timeout=5)  # noqa: S310  # time: a probe
            with probe:
                return True
        except urllib.error.HTTPError as answer:
            answer.close()
            return True  # it refuses a request without a signature
        except (OSError, http.client.HTTPException):
            return False


@contextmanager
def s3_server() -> Iterator[S3Proxy]:
    """Give a server for the whole run."""
    with S3Proxy() as server:
        yield server
