"""Settings of the HTTP endpoints: address, TLS and tokens."""

from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import Field, FilePath, model_validator

from sluicegate.coordinator.settings.sources import Section, Text
from sluicegate.kafka.settings import UnusableFile, read_secret

REALM: Final = "sluicegate"
"""Name of what the tokens protect, in the challenge of HTTP."""
_SHORTEST: Final = 16
"""Characters of a token."""


class CannotServe(OSError):
    """The server cannot listen on the address, or use its files; the text has the key to change."""


class HttpSettings(Section):
    """The HTTP endpoints /livez, /readyz, /metrics and /status, the page and its interface."""

    host: Text = "127.0.0.1"
    """Address to listen on; `0.0.0.0` in a container."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 8080
    """0: any free port; the log has its number."""
    token_files: tuple[Path, ...] = ()
    """Files with one token each; every one of them is valid. Default: no token is needed.

    SIGHUP reads this setting and the files again. Commands send the first one.
    """
    open_probes: bool = True
    """True: /livez and /readyz need no token."""
    certificate_file: FilePath | None = None
    """Certificate of the server with its chain, PEM; with it, the endpoints have TLS alone. SIGHUP reads it
    again."""
    key_file: FilePath | None = None
    """Its private key without a password, PEM. Default: `certificate_file` has it."""
    ca_file: FilePath | None = None
    """Authorities that a command trusts when it asks the coordinator. Default: those of the system."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.key_file is not None and self.certificate_file is None:
            raise ValueError("`key_file` is set, but `certificate_file` is not; set both or none")
        return self


def read_tokens(http: HttpSettings) -> tuple[bytes, ...]:
    """Read the tokens. Raises UnusableFile."""
    return tuple(_read_token(file) for file in http.token_files)


def _read_token(file: Path) -> bytes:
    text = read_secret("http.token_files", file).strip()
    if len(text) < _SHORTEST:
        raise UnusableFile(
            "http.token_files", f"{file} has less than {_SHORTEST} characters; make one: openssl rand -hex 32"
        )
    # A header has one line, and clients end a token at a blank: no request could send such a token.
    if any(each.isspace() or not each.isprintable() for each in text):
        raise UnusableFile(
            "http.token_files",
            f"{file} has a line break, a blank or an invisible character inside its token; "
            "write one token per file; list several files",
        )
    return text.encode()
