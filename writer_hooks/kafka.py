"""Settings of the connection to Kafka, read from options named as in Kafka's own clients."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sluicegate.writer_hooks.errors import BadOption

PREFIX: Final = "kafka."

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI")
_COMPRESSIONS: Final = ("zstd", "lz4", "gzip", "none")
_KNOWN: Final = (
    "bootstrap.servers",
    "client.id",
    "compression.type",
    "request.timeout.ms",
    "sasl.kerberos.service.name",
    "sasl.mechanism",
    "sasl.password",
    "sasl.username",
    "security.protocol",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
)


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """How to reach Kafka. Pickled to executors, hashable, and silent about secrets when printed."""

    bootstrap_servers: str
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str = "PLAIN"
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    sasl_kerberos_service_name: str = "kafka"
    ssl_ca_location: str | None = None
    ssl_certificate_location: str | None = None
    ssl_key_location: str | None = None
    ssl_key_password: str | None = field(default=None, repr=False)
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
        """The keyword arguments that producers and consumers of aiokafka share. Reads TLS files."""
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
                "sasl_plain_password": self.sasl_password,
                "sasl_kerberos_service_name": self.sasl_kerberos_service_name,
            }
        if self.security_protocol.endswith("SSL"):
            arguments["ssl_context"] = self._ssl_context()
        return arguments

    def _ssl_context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ssl_ca_location)
            if self.ssl_certificate_location is not None:
                context.load_cert_chain(
                    self.ssl_certificate_location, self.ssl_key_location, self.ssl_key_password
                )
        except OSError as error:
            raise BadOption(
                f"the TLS files in the options {PREFIX}ssl.* cannot be read on this machine: {error}"
            ) from error
        return context


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
