"""Settings of the listener `openlineage`."""

from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from sluicegate.listeners.port import Options


def _check_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be a URL such as https://lineage.example.com")
    if parts.username or parts.password:
        raise ValueError("must not contain credentials: they would be in logs; set `api_key_file`")
    return value


class OpenLineageOptions(Options):
    """Settings of the listener `openlineage`."""

    url: Annotated[str, AfterValidator(_check_url)] | None = None
    """URL of a server with the HTTP interface of OpenLineage, such as Marquez; or set `config_file`."""
    endpoint: str = "api/v1/lineage"
    """Path of the server for events."""
    api_key_file: Path | None = None
    """File with a key, which is sent as `Authorization: Bearer KEY`. Each request reads the file."""
    timeout: Annotated[float, Field(gt=0, le=60)] = 10.0
    """Seconds for one request."""
    config_file: Path | None = None
    """File `openlineage.yml` of the client library, with the section `transport` alone."""
    namespace: Annotated[str, Field(min_length=1, max_length=200)] = "sluicegate"
    """Namespace of the jobs. A stream is a job of its name."""

    @model_validator(mode="after")
    def _one_destination(self) -> Self:
        if (self.url is None) == (self.config_file is None):
            raise ValueError("set `url` or `config_file`, one of them")
        if self.url is None and self.api_key_file is not None:
            raise ValueError("`api_key_file` belongs to `url`; `config_file` has its own `auth`")
        return self
