"""Kafka and Redis-protocol servers as child processes, for the demo and the tests."""

from sluicegate.embedded.errors import EmbeddedError, FetchError, JavaError, StartError
from sluicegate.embedded.kafka import EmbeddedKafka
from sluicegate.embedded.kafka_probe import cluster_id
from sluicegate.embedded.settings import KAFKA_VERSION, SHARED_BROKER_SETTINGS, SHARED_VALKEY_SETTINGS
from sluicegate.embedded.valkey import EmbeddedValkey

__all__ = [
    "KAFKA_VERSION",
    "SHARED_BROKER_SETTINGS",
    "SHARED_VALKEY_SETTINGS",
    "EmbeddedError",
    "EmbeddedKafka",
    "EmbeddedValkey",
    "FetchError",
    "JavaError",
    "StartError",
    "cluster_id",
]
