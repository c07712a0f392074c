"""Settings of the connection to Kafka."""

import ssl
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, FilePath, SecretStr, model_validator

from sluicegate.coordinator.settings.sources import Section, SettingsError, Text, from_files
from sluicegate.coordinator.settings.units import Bytes, Seconds
from sluicegate.kafka.tokens import TokenFile
from sluicegate.kafka.topics import MAX_MESSAGE_BYTES, TopicNames, TopicSpec, topic_specs

MIN_MESSAGE_BYTES: Final = 64 << 10


def _reveal(secret: SecretStr | None) -> str | None:
    """The secret itself, to be handed to a client and to nothing else."""
    return None if secret is None else secret.get_secret_value()


class KafkaSecurity(Section):
    """How to prove to Kafka who we are; TLS files are PEM."""

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"] = "PLAIN"
    username: Text | None = None
    password: SecretStr | None = None
    password_file: Path | None = None
    """A file with the password, in its place."""
    token_file: Path | None = None
    """A file with the token of OAUTHBEARER, read anew for each connection."""
    kerberos_service_name: Text = "kafka"
    ca_file: FilePath | None = None
    """The authorities to trust; None: those of the system."""
    certificate_file: FilePath | None = None
    key_file: FilePath | None = None
    key_password: SecretStr | None = None
    key_password_file: Path | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_secrets(cls, values: object) -> object:
        return from_files(values, "password", "key_password")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        sasl = self.protocol.startswith("SASL")
        needs_password = sasl and self.mechanism not in ("GSSAPI", "OAUTHBEARER")
        if needs_password and (self.username is None or self.password is None):
            raise ValueError(
                f"{self.protocol} with {self.mechanism} needs `username` and `password` (or `password_file`)"
            )
        if sasl and self.mechanism == "OAUTHBEARER" and self.token_file is None:
            raise ValueError(f"{self.protocol} with OAUTHBEARER needs `token_file`")
        if not sasl and (self.username is not None or self.token_file is not None):
            raise ValueError(
                f"`username` or `token_file` is set, but with the protocol {self.protocol} nobody would ask "
                "for it; set `protocol` to SASL_SSL (or SASL_PLAINTEXT)"
            )
        if self.key_file is not None and self.certificate_file is None:
            raise ValueError("`key_file` is set, but `certificate_file` is not; set both or none")
        return self

    def client_options(self) -> dict[str, Any]:
        """The keyword arguments for clients of aiokafka. Raises SettingsError for unusable PEM files."""
        options: dict[str, Any] = {"security_protocol": self.protocol}
        if self.protocol.startswith("SASL"):
            options["sasl_mechanism"] = self.mechanism
            options["sasl_plain_username"] = self.username
            options["sasl_plain_password"] = _reveal(self.password)
            options["sasl_kerberos_service_name"] = self.kerberos_service_name
        if options.get("sasl_mechanism") == "OAUTHBEARER" and self.token_file is not None:
            options["sasl_oauth_token_provider"] = TokenFile(self.token_file)
        if self.protocol.endswith("SSL"):
            options["ssl_context"] = self._ssl_context()
        return options

    def _ssl_context(self) -> ssl.SSLContext:
        key = "ca_file"
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.certificate_file is not None:
                key = "certificate_file"
                # Without this a missing password makes OpenSSL ask for one on the terminal.
                password = _reveal(self.key_password) or ""
                context.load_cert_chain(self.certificate_file, self.key_file, password)
        except (OSError, ValueError) as error:
            problem = f"cannot be used ({error}); give PEM files, and `key_password` if the key has one"
            raise SettingsError([f"kafka.security.{key}: {problem}"]) from error
        return context


def _join_servers(value: object) -> object:
    return ",".join(str(server) for server in value) if isinstance(value, list | tuple) else value


def _check_servers(value: str) -> str:
    for server in value.split(","):
        host, _, port = server.strip().rpartition(":")
        if not host or "/" in host or not port.isdigit():
            raise ValueError("must be host:port, several with commas")
    return ",".join(server.strip() for server in value.split(","))


def _check_topic(value: str) -> str:
    return TopicNames(value).prefix


class KafkaSettings(Section):
    """How to reach Kafka, and what our topics and group are called."""

    bootstrap_servers: Annotated[str, BeforeValidator(_join_servers), AfterValidator(_check_servers)]
    """`host:port`, several with commas."""
    group_id: Text = "sluicegate"
    topic_prefix: Annotated[str, AfterValidator(_check_topic)] = "sluicegate"
    partitions: Annotated[int, Field(ge=1, le=10_000)] = 12
    """Of the events topic when it is created; it must not change afterwards."""
    replication_factor: Annotated[int, Field(ge=1, le=100)] = 1
    """Of topics when they are created; 3 where there are that many brokers."""
    retention: Seconds = 7 * 86_400.0
    """How long events and commits stay in the log. What is pending for half of it is appended again."""
    max_message_bytes: Annotated[Bytes, Field(ge=MIN_MESSAGE_BYTES)] = MAX_MESSAGE_BYTES
    """What a message of the topics may take; writers split larger events."""
    session_timeout: Seconds = 10.0
    """After this silence another member takes over; the broker has limits for it."""
    seats_folder: str = ""
    """A local folder in which members note that they live, so that a restart does not wait for the session of
    a killed predecessor. Default: one in the system's folder for temporary files."""
    request_timeout: Seconds = 15.0
    client_id: Text = "sluicegate"
    security: KafkaSecurity = KafkaSecurity()

    def client_options(self) -> dict[str, Any]:
        """The keyword arguments that all clients of aiokafka share. Raises SettingsError; reads PEM files."""
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "client_id": self.client_id,
            "request_timeout_ms": round(self.request_timeout * 1000),
            **self.security.client_options(),
        }

    @property
    def carry_after(self) -> float:
        """Age in seconds at which pending events are appended again, ahead of retention."""
        return self.retention / 2

    def topic_names(self) -> TopicNames:
        """The names of the deployment's topics."""
        return TopicNames(self.topic_prefix)

    def topic_specs(self) -> tuple[TopicSpec, ...]:
        """How the topics are to be; `ensure_topics` and `verify_topics` take it."""
        return topic_specs(
            self.topic_names(),
            partitions=self.partitions,
            replication_factor=self.replication_factor,
            retention_ms=round(self.retention * 1000),
            max_message_bytes=self.max_message_bytes,
        )
