"""Settings of the connection to Kafka, read from options named as in Kafka's own clients."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sluicegate.kafka.tokens import TokenFile
from sluicegate.writer_hooks.errors import BadOption

PREFIX: Final = "kafka."

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
_COMPRESSIONS: Final = ("zstd", "lz4", "gzip", "none")
_KNOWN: Final = (
    "bootstrap.servers",
    "client.id",
    "compression.type",
    "request.timeout.ms",
    "sasl.kerberos.service.name",
    "sasl.mechanism",
    "sasl.oauth.token.file",
    "sasl.password",
    "sasl.password.file",
    "sasl.username",
    "security.protocol",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.key.password.file",
)


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """How to reach Kafka. Pickled to executors, hashable, and silent about secrets when printed.

    What a file holds is read on the machine that connects, and does not travel.
    """

    bootstrap_servers: str
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str = "PLAIN"
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    sasl_password_file: str | None = None
    sasl_oauth_token_file: str | None = None
    sasl_kerberos_service_name: str = "kafka"
    ssl_ca_location: str | None = None
    ssl_certificate_location: str | None = None
    ssl_key_location: str | None = None
    ssl_key_password: str | None = field(default=None, repr=False)
    ssl_key_password_file: str | None = None
    client_id: str = "sluicegate-hooks"
    compression_type: str = "zstd"
    request_timeout_ms: int = 15_000

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> "KafkaSettings":
        """Read the options that start with `kafka.`. Raises BadOption for what is unknown or malformed."""
        given = {
            name.lower().removeprefix(PREFIX): value
            for name, value in options.items()
            if name.lower().startswith(PREFIX)
        }
        for name in given:
            if name not in _KNOWN:
                raise BadOption(f"unknown option {PREFIX}{name}; known are {PREFIX}{{{', '.join(_KNOWN)}}}")
        if not given.get("bootstrap.servers", "").strip():
            raise BadOption(
                f"the option {PREFIX}bootstrap.servers is missing: host:port, several with commas"
            )
        _require_addresses(given["bootstrap.servers"])
        _require_one_of(given, "security.protocol", _PROTOCOLS)
        _require_one_of(given, "sasl.mechanism", _MECHANISMS)
        _require_one_of(given, "compression.type", _COMPRESSIONS)
        _require_credentials(given)
        timeout = given.get("request.timeout.ms")
        if timeout is not None and not (timeout.isdigit() and int(timeout) > 0):
            raise BadOption(
                f"the option {PREFIX}request.timeout.ms must be a whole number above 0: {timeout!r}"
            )
        values: dict[str, Any] = {name.replace(".", "_"): value for name, value in given.items()}
        if timeout is not None:
            values["request_timeout_ms"] = int(timeout)
        return cls(**values)

    def client_arguments(self) -> dict[str, Any]:
        """The keyword arguments that producers and consumers of aiokafka share; reads the files they need.

        Raises BadOption.
        """
        arguments: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap_servers,
            "client_id": self.client_id,
            "request_timeout_ms": self.request_timeout_ms,
            "security_protocol": self.security_protocol,
        }
        if self.security_protocol.startswith("SASL"):
            arguments |= {
                "sasl_mechanism": self.sasl_mechanism,
                "sasl_plain_username": self.sasl_username,
                "sasl_plain_password": _secret("sasl.password", self.sasl_password, self.sasl_password_file),
                "sasl_kerberos_service_name": self.sasl_kerberos_service_name,
            }
            if self.sasl_mechanism == "OAUTHBEARER" and self.sasl_oauth_token_file is not None:
                arguments["sasl_oauth_token_provider"] = TokenFile(Path(self.sasl_oauth_token_file))
        if self.security_protocol.endswith("SSL"):
            arguments["ssl_context"] = self._ssl_context()
        return arguments

    def _ssl_context(self) -> ssl.SSLContext:
        word = _secret("ssl.key.password", self.ssl_key_password, self.ssl_key_password_file)
        try:
            context = ssl.create_default_context(cafile=self.ssl_ca_location)
            if self.ssl_certificate_location is not None:
                # Without a word for the key OpenSSL would ask for one on the terminal.
                context.load_cert_chain(self.ssl_certificate_location, self.ssl_key_location, word or "")
        except (OSError, ValueError) as error:
            raise BadOption(
                f"the TLS files in the options {PREFIX}ssl.* cannot be used on this machine: {error}; give "
                f"PEM files, and {PREFIX}ssl.key.password if the key has one"
            ) from error
        return context


def _secret(name: str, given: str | None, file: str | None) -> str | None:
    """The secret, or what its file holds, without the line break at its end."""
    if file is None:
        return given
    try:
        text = Path(file).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BadOption(
            f"the file of the option {PREFIX}{name}.file cannot be read on this machine: "
            f"{file} ({type(error).__name__})"
        ) from None
    if not text:
        raise BadOption(f"the file of the option {PREFIX}{name}.file is empty: {file}")
    return text


def _require_credentials(given: dict[str, str]) -> None:
    """What a login needs must be there, once, and a login must not be meant and left out."""
    for name in ("sasl.password", "ssl.key.password"):
        if name in given and f"{name}.file" in given:
            raise BadOption(
                f"the options {PREFIX}{name} and {PREFIX}{name}.file are both set; set one of them"
            )
    protocol, mechanism = given.get("security.protocol", "PLAINTEXT"), given.get("sasl.mechanism", "PLAIN")
    if not protocol.startswith("SASL"):
        if "sasl.username" in given or "sasl.oauth.token.file" in given:
            raise BadOption(
                f"options {PREFIX}sasl.* are set, but with {PREFIX}security.protocol {protocol} nobody would "
                "ask for them; set it to SASL_SSL (or SASL_PLAINTEXT)"
            )
    elif mechanism == "OAUTHBEARER":
        if "sasl.oauth.token.file" not in given:
            raise BadOption(f"{protocol} with OAUTHBEARER needs the option {PREFIX}sasl.oauth.token.file")
    elif mechanism != "GSSAPI" and not (
        given.get("sasl.username") and (given.get("sasl.password") or given.get("sasl.password.file"))
    ):
        raise BadOption(
            f"{protocol} with {mechanism} needs the options {PREFIX}sasl.username and {PREFIX}sasl.password "
            f"(or {PREFIX}sasl.password.file)"
        )


def _require_addresses(servers: str) -> None:
    for address in servers.split(","):
        host, _, port = address.strip().rpartition(":")
        if not (host and port.isascii() and port.isdigit() and 0 < int(port) < 65_536) or "/" in host:
            raise BadOption(
                f"the option {PREFIX}bootstrap.servers must be host:port, several with commas: {servers!r}"
            )


def _require_one_of(given: dict[str, str], name: str, allowed: tuple[str, ...]) -> None:
    if name in given and given[name] not in allowed:
        raise BadOption(f"the option {PREFIX}{name} must be one of {', '.join(allowed)}: {given[name]!r}")
