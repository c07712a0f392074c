"""AWS Glue as moto has it: a server on loopback, in a thread of this process."""

import functools
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import botocore.loaders
import pytest

SECRET: Final = "secret-of-glue"  # noqa: S105
ENVIRONMENT: Final[Mapping[str, str]] = {
    "AWS_ACCESS_KEY_ID": "access-of-glue",
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""Variables that a process needs to reach the server."""


@contextmanager
def glue_server() -> Iterator[str]:
    """Give the address of the server.

    moto ignores the `VersionId` of an update. AWS documents it as the version at which the update is made,
    and Iceberg's own catalog relies on the refusal of another one. So the check is added here.
    """
    # Most tests need no moto, and its import takes a while.
    from moto.core.exceptions import JsonRESTError
    from moto.glue.responses import GlueResponse
    from moto.server import ThreadedMotoServer

    update = GlueResponse.update_table
    lock = threading.Lock()

    def checked(response: Any) -> Any:
        asked, name = response.parameters.get("VersionId"), response.parameters["TableInput"]["Name"]
        with lock:
            table = response.glue_backend.get_table(response.parameters["DatabaseName"], name)
            if asked not in (None, str(max(int(each) for each in table.versions))):
                raise JsonRESTError("ConcurrentModificationException", "the table has another version")
            return update(response)

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GlueResponse, "update_table", checked)
        # Each client would read the description of the service again.
        patch.setattr(botocore.loaders, "create_loader", functools.cache(botocore.loaders.create_loader))
        server.start()
        try:
            yield f"http://127.0.0.1:{server.get_host_and_port()[1]}"
        finally:
            server.stop()


def options_of(uri: str) -> dict[str, str]:
    """Return the options with which a client reaches a server."""
    return {"glue.endpoint": uri, "glue.region": "us-east-1"}
