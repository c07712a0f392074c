"""The connection to Kafka: one model for the service, the commands and the writer hooks.

The service fills the model from its settings, the writer hooks fill it from their options. Error texts put
the names of fields in backticks, so that the hooks can replace them by the names of options.
"""

import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, SecretStr, model_validator

from sluicegate.installation import install_command
from sluicegate.kafka.tokens import (
    TokenFile,
    TokenSource,
    msk_tokens,
    oidc_tokens,
    parse_extensions,
    signer_installed,
)

_PREAMBLE: Final = re.compile(r"^Value error, |^(Input|String) should(?= )")
_EVENT_HUBS: Final = ".servicebus."
"""Part of the names of its hosts, in each cloud of Azure."""
_PEM: Final = "give PEM files, and `key_password` if the key has one"


class UnusableFile(ValueError):
    """A file that a field names cannot be used on this machine."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"`{field}`: {problem}")
        self.field = field
        self.problem = problem


def plain(message: str) -> str:
    """Return a message of pydantic so that it can follow the name of a field: "must be ..."."""
    return _PREAMBLE.sub(lambda found: "must" if found[1] else "", message)


def check_secrets(values: object, *names: str, read: bool) -> object:
    """Check that no secret is given twice, as `NAME` and as `NAME_file`; `read` fills it from the file.

    Raises ValueError, without the content of the file.
    """
    if not isinstance(values, Mapping):
        return values
    filled = dict(values)
    for name in names:
        file = filled.get(f"{name}_file")
        if file and filled.get(name):
            raise ValueError(f"`{name}` and `{name}_file` are both set; set one of them")
        if file and read:
            filled[name] = read_secret(f"{name}_file", file)
    return filled


def read_secret(field: str, file: Path | str) -> str:
    """Return the content of a file, without the line break at its end. Raises UnusableFile."""
    try:
        text = Path(file).read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        problem = f"{file} cannot be read on this machine: {error.strerror or error}"
        raise UnusableFile(field, problem) from None
    except UnicodeDecodeError:
        raise UnusableFile(field, f"{file} is not UTF-8 text") from None
    if not text:
        raise UnusableFile(field, f"{file} is empty")
    return text


def _check_named(value: object) -> object:
    if value == "":
        raise ValueError("must name a file")
    return value


def _check_address(value: str) -> str:
    try:
        parts = urlsplit(value)
        usable = parts.scheme in ("https", "http") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable or parts.username is not None or parts.password is not None or parts.fragment:
        raise ValueError("must look like https://host/path, without user and password")
    return value


def _check_extensions(value: str) -> str:
    parse_extensions(value)
    return value


Text = Annotated[str, Field(min_length=1)]
_Address = Annotated[str, AfterValidator(_check_address)]
_Extensions = Annotated[str, AfterValidator(_check_extensions)]
_Region = Annotated[str, Field(pattern="^[a-z]{2}(-[a-z]+)+-[0-9]+$")]
_File = Annotated[Path, BeforeValidator(_check_named)]


_SOURCES: Final = {
    "file": ("token_file",),
    "oidc": ("token_url", "token_client", "token_secret_file", "token_scope", "token_extensions"),
    "aws-msk-iam": ("token_region",),
}
"""The fields of each source of tokens."""
_OPTIONAL: Final = ("token_scope", "token_extensions")


class Security(BaseModel, extra="forbid", frozen=True, hide_input_in_errors=True):
    """Encryption and login; TLS files are PEM."""

    reads_secrets_early: ClassVar[bool] = False
    """True: files of secrets are read with the settings. False: when a client is made, where it is made."""

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """SSL: encrypted. SASL: with a login."""
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"] = "PLAIN"
    """Kind of the login, if `protocol` has SASL."""
    username: Text | None = None
    """Name for PLAIN and SCRAM."""
    password: SecretStr | None = None
    """Password for PLAIN and SCRAM."""
    password_file: _File | None = None
    """A file with the password, in its place."""
    token_source: Literal["file", "oidc", "aws-msk-iam"] = "file"  # noqa: S105
    """Source of the tokens of OAUTHBEARER. oidc: client credentials of OAuth 2.0. aws-msk-iam: AWS signs."""
    token_file: _File | None = None
    """For file: it has the token, and is read again for each connection."""
    token_url: _Address | None = None
    """For oidc: the token endpoint. Authorities of the system and of `ca_file` are trusted."""
    token_client: Text | None = None
    """For oidc: id of the client."""
    token_secret_file: _File | None = None
    """For oidc: a file with the secret of the client, read again for each token."""
    token_scope: Text | None = None
    """For oidc: scope of the tokens, several with blanks."""
    token_extensions: _Extensions = ""
    """For oidc: `name=value`, several with commas, sent to the brokers with the token."""
    token_region: _Region | None = None
    """For aws-msk-iam: region of the brokers, such as eu-central-1."""
    kerberos_service_name: Text = "kafka"
    """First part of the principal of the brokers, for GSSAPI."""
    ca_file: _File | None = None
    """Trusted authorities, PEM. Default: those of the system."""
    certificate_file: _File | None = None
    """Client certificate, PEM."""
    key_file: _File | None = None
    """Key of the client certificate, PEM. Default: it is in `certificate_file`."""
    key_password: SecretStr | None = None
    """Password of the key."""
    key_password_file: _File | None = None
    """File with the password of the key, in its place."""

    @model_validator(mode="before")
    @classmethod
    def _check_secrets(cls, values: object) -> object:
        return check_secrets(values, "password", "key_password", read=cls.reads_secrets_early)

    @model_validator(mode="after")
    def _complete(self) -> Self:
        sasl = self.protocol.startswith("SASL")
        needs_password = sasl and self.mechanism not in ("GSSAPI", "OAUTHBEARER")
        if needs_password and not (self.username and (self.password or self.password_file)):
            raise ValueError(
                f"{self.protocol} with {self.mechanism} needs `username` and `password` (or `password_file`)"
            )
        given = [name for names in _SOURCES.values() for name in names if getattr(self, name)]
        if not sasl and (self.username is not None or given):
            raise ValueError(
                f"`{(given or ['username'])[0]}` is set, but with the protocol {self.protocol} nobody would "
                "ask for it; set `protocol` to SASL_SSL (or SASL_PLAINTEXT)"
            )
        if sasl and self.mechanism == "OAUTHBEARER":
            self._complete_source(given)
        elif given or self.token_source != "file":  # noqa: S105
            raise ValueError(f"`{(given or ['token_source'])[0]}` is set, but `mechanism` is not OAUTHBEARER")
        if self.key_file is not None and self.certificate_file is None:
            raise ValueError("`key_file` is set, but `certificate_file` is not; set both or none")
        return self

    def _complete_source(self, given: list[str]) -> None:
        source, own = self.token_source, _SOURCES[self.token_source]
        lacks = [name for name in own if name not in _OPTIONAL and name not in given]
        if lacks:
            raise ValueError(
                f"{self.protocol} with OAUTHBEARER and the source {source} needs "
                f"{' and '.join(f'`{name}`' for name in lacks)}"
            )
        if other := [name for name in given if name not in own]:
            raise ValueError(f"`{other[0]}` is set, but `token_source` is {source}, which does not use it")

    def client_options(self) -> dict[str, Any]:
        """Return the keyword arguments for clients of aiokafka. Reads files; raises UnusableFile."""
        options: dict[str, Any] = {"security_protocol": self.protocol}
        if self.protocol.startswith("SASL"):
            options["sasl_mechanism"] = self.mechanism
            options["sasl_plain_username"] = self.username
            options["sasl_plain_password"] = self._secret("password")
            options["sasl_kerberos_service_name"] = self.kerberos_service_name
            if self.mechanism == "OAUTHBEARER":
                options["sasl_oauth_token_provider"] = self._tokens()
        if self.protocol.endswith("SSL"):
            options["ssl_context"] = self._ssl_context()
        return options

    def _tokens(self) -> TokenSource:
        if self.token_region is not None:
            if not signer_installed():
                raise UnusableFile("token_source", f"aws-msk-iam needs {install_command('msk')}")
            return msk_tokens(self.token_region)
        if (
            self.token_url is not None
            and self.token_client is not None
            and self.token_secret_file is not None
        ):
            return oidc_tokens(
                self.token_url,
                self.token_client,
                self.token_secret_file,
                self.token_scope or "",
                self.token_extensions,
                self.ca_file,
            )
        # The settings are complete, so it is the third source.
        return TokenFile(self.token_file or Path())

    def _secret(self, name: Literal["password", "key_password"]) -> str | None:
        given: SecretStr | None = getattr(self, name)
        file: Path | None = getattr(self, f"{name}_file")
        if given or file is None:
            return given.get_secret_value() if given else None
        return read_secret(f"{name}_file", file)

    def _ssl_context(self) -> ssl.SSLContext:
        # Without a password for the key OpenSSL would ask for one on the terminal.
        key_password = self._secret("key_password") or ""
        field = "ca_file"
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.certificate_file is not None:
                field = "certificate_file"
                context.load_cert_chain(self.certificate_file, self.key_file, key_password)
        except (OSError, ValueError) as error:
            raise UnusableFile(field, f"cannot be used on this machine: {error}; {_PEM}") from error
        return context


def _join_servers(value: object) -> object:
    return ",".join(str(server) for server in value) if isinstance(value, list | tuple) else value


def _check_servers(value: str) -> str:
    servers = [server.strip() for server in value.split(",")]
    for server in servers:
        host, _, port = server.rpartition(":")
        if not (host and port.isascii() and port.isdigit() and 0 < int(port) < 65_536) or "/" in host:
            raise ValueError("must be host:port, several with commas")
        if _EVENT_HUBS in host:
            raise ValueError(
                "must not be Azure Event Hubs: its topics are not compacted, and events that wait are "
                "deleted after 90 days. Use a Kafka of the list in docs/kafka.md"
            )
    return ",".join(servers)


class Connection(BaseModel, extra="forbid", frozen=True, hide_input_in_errors=True):
    """The brokers, and the identity of their client. Hashable; does not show its secrets."""

    bootstrap_servers: Annotated[
        str,
        BeforeValidator(_join_servers, json_schema_input_type=str | list[str]),
        AfterValidator(_check_servers),
    ]
    """`host:port`, several with commas."""
    client_id: Text = "sluicegate"
    """Name of the client in the logs and quotas of the brokers."""
    request_timeout: Annotated[float, Field(ge=0.001, allow_inf_nan=False)] = 15.0
    """Seconds."""
    security: Security = Security()

    def client_options(self) -> dict[str, Any]:
        """Return the keyword arguments of all clients of aiokafka. Reads files; raises UnusableFile."""
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "client_id": self.client_id,
            "request_timeout_ms": round(self.request_timeout * 1000),
            **self.security.client_options(),
        }
