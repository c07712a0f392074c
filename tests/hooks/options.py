"""Options of sinks and drivers: of a region whose Kafka nobody reaches, and of one in the log of a test."""

from typing import Final

from tests.hooks.log import Log

OPTIONS: Final = {
    "stream": "flights",
    "region": "JFK",
    "table": "/lake/flights",
    "kafka.bootstrap.servers": "127.0.0.1:1",
}


def in_log(log: Log, unique: str, region: str = "JFK") -> dict[str, str]:
    """Return options without a table; the limits are longer than any machine takes."""
    return {
        "stream": unique,
        "region": region,
        "kafka.bootstrap.servers": log.bootstrap,
        "topic.prefix": unique,
        "registration.timeout": "900",
        "publish.timeout": "900",
    }
