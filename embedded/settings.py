"""Versions and server settings of the embedded servers.

docker-compose.yml repeats the shared settings; a test compares the two.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

KAFKA_VERSION: Final = "4.2.0"
SCALA_VERSION: Final = "2.13"
SLF4J_VERSION: Final = "1.7.36"
MINIMUM_JAVA: Final = 17

SHARED_BROKER_SETTINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "auto.create.topics.enable": "false",
        "default.replication.factor": "1",
        "min.insync.replicas": "1",
        "message.max.bytes": "1048588",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
    }
)

# Limits that keep one process small. A container image has its own values for these settings.
EMBEDDED_BROKER_SETTINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "num.network.threads": "2",
        "num.io.threads": "4",
        "background.threads": "2",
        # After a kill, the broker's id is not available until its registration expires.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        "log.cleaner.dedupe.buffer.size": "16777216",
    }
)

SHARED_VALKEY_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({"save": "", "appendonly": "no"})
