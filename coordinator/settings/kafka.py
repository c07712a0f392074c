"""Settings of the connection to Kafka."""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Final

from pydantic import AfterValidator, Field, FilePath

from sluicegate.coordinator.settings.signing import SigningSettings, millis
from sluicegate.coordinator.settings.sources import SettingsError, Text
from sluicegate.coordinator.settings.units import Bytes, Seconds
from sluicegate.events.causes import Cause
from sluicegate.events.signing import Signatures
from sluicegate.kafka.settings import Connection, Security, UnusableFile
from sluicegate.kafka.topics import (
    DEAD_LETTER_EXTRA_BYTES,
    MAX_MESSAGE_BYTES,
    TopicNames,
    TopicSpec,
    largest_state_message,
    topic_specs,
)

MIN_MESSAGE_BYTES: Final = 64 << 10


class KafkaSecurity(Security):
    """Encryption and login, with files of this machine: they are checked when the settings are loaded."""

    reads_secrets_early: ClassVar[bool] = True

    ca_file: FilePath | None = None
    certificate_file: FilePath | None = None
    key_file: FilePath | None = None


def _check_topic(value: str) -> str:
    return TopicNames(value).prefix


class KafkaSettings(Connection):
    """The connection to Kafka, the group, and the topics."""

    group_id: Text = "sluicegate"
    """Consumer group of the coordinators; its members share the streams."""
    topic_prefix: Annotated[str, AfterValidator(_check_topic)] = "sluicegate"
    """First part of the names of the topics: `PREFIX.events`, `.commits`, `.state` and `.dead-letters`."""
    partitions: Annotated[int, Field(ge=1, le=10_000)] = 12
    """Of the events topic when it is created; it must not change afterwards."""
    replication_factor: Annotated[int, Field(ge=1, le=100)] = 1
    """Of topics when they are created; 3 where there are that many brokers."""
    retention: Seconds = 7 * 86_400.0
    """Retention of the commits topic. Events stay until nobody needs them, see `replay_window`."""
    max_message_bytes: Annotated[Bytes, Field(ge=MIN_MESSAGE_BYTES)] = MAX_MESSAGE_BYTES
    """Largest size of a message in the topics; writers split larger events. State records may have 4 MiB."""
    session_timeout: Seconds = 10.0
    """After this silence another member takes over; the broker has limits for it."""
    members_folder: str = ""
    """A local folder in which members note that they live, so that a restart does not wait for the session of
    a killed member. Default: one in the system's folder for temporary files."""
    request_timeout: Annotated[Seconds, Field(ge=0.001)] = 15.0
    """Time after which a request to a broker has failed."""
    security: KafkaSecurity = KafkaSecurity()
    signing: SigningSettings = SigningSettings()

    def limits(self) -> dict[str, int]:
        """Return the bytes of the largest message, of the topics with another limit than the setting."""
        names = self.topic_names()
        return {
            names.state: largest_state_message(self.max_message_bytes),
            names.dead_letters: self.max_message_bytes + DEAD_LETTER_EXTRA_BYTES,
        }

    def client_options(self) -> dict[str, Any]:
        """Return the keyword arguments of all clients of aiokafka. Reads files; raises SettingsError."""
        try:
            return super().client_options()
        except UnusableFile as error:
            raise SettingsError([f"kafka.security.{error.field}: {error.problem}"]) from error

    def topic_names(self) -> TopicNames:
        """The names of the deployment's topics."""
        return TopicNames(self.topic_prefix)

    def signatures(self, lacks: Callable[[Cause], None] | None = None) -> Signatures:
        """Return the signatures of the events topic; `lacks` as for `Signatures`."""
        signing = self.signing
        retired = {name: millis(moment) for name, moment in signing.retired.items()}
        return Signatures(
            self.topic_names().events,
            signing.mode,
            signing.keys(),
            since=millis(signing.since),
            retired=retired,
            lacks=lacks,
        )

    def topic_specs(self) -> tuple[TopicSpec, ...]:
        """Return the wanted topics, for `ensure_topics` and `verify_topics`."""
        return topic_specs(
            self.topic_names(),
            partitions=self.partitions,
            replication_factor=self.replication_factor,
            retention_ms=round(self.retention * 1000),
            max_message_bytes=self.max_message_bytes,
        )
