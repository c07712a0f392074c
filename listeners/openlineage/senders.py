"""Ways of an event to its destination, by the configuration of OpenLineage's client library.

The transports of the library are used where they raise for what is not delivered. That of Kafka only logs
it, so the producer is asked here. That of HTTP follows redirects with GET, so it gets a session that refuses.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import requests
import yaml
from openlineage.client.event_v2 import RunEvent
from openlineage.client.serde import Serde
from openlineage.client.transport.file import FileConfig, FileTransport
from openlineage.client.transport.http import HttpConfig, HttpTransport, TokenProvider
from openlineage.client.transport.kafka import KafkaConfig

from sluicegate.listeners.openlineage.options import OpenLineageOptions
from sluicegate.listeners.port import Done, Failed, ListenerUnready, Result, Unknown

_SHOWN: Final = 200
_ONCE: Final = {"total": 0}
"""The host of the listeners tries again, so that a failure is shown."""
_DELIVERY: Final = 30_000
"""Milliseconds for one event on its way to Kafka."""

_LONGEST: Final = 600.0
"""Seconds for one event on its way to Kafka, whatever its settings are."""

Sender = Callable[[RunEvent], Result]
"""Send one event. It blocks."""


class FileToken(TokenProvider):
    """The key of a file, which is read for each request."""

    def __init__(self, path: Path) -> None:
        super().__init__({})
        self._path = path

    def get_bearer(self) -> str:
        """Return the value of the header. Raises OSError."""
        return f"Bearer {self._path.read_text(encoding='utf-8').strip()}"


def open_sender(options: OpenLineageOptions) -> Sender:
    """Return the sender of some settings. Raises ListenerUnready with the way out."""
    if options.config_file is not None:
        return _configured(options.config_file)
    config = HttpConfig(
        url=options.url or "", endpoint=options.endpoint, timeout=options.timeout, retry=dict(_ONCE)
    )
    if options.api_key_file is not None:
        config.auth = FileToken(options.api_key_file)
        try:
            config.auth.get_bearer()
        except (OSError, UnicodeDecodeError) as error:
            raise ListenerUnready(
                f"api_key_file {options.api_key_file} cannot be read ({error}); write the key into it"
            ) from error
    return _http(config)


def _configured(path: Path) -> Sender:
    example = "write `transport:` with `type: http`, `kafka` or `file` into it"
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ListenerUnready(f"config_file {path} cannot be read ({error}); {example}") from error
    if not isinstance(found, dict) or not isinstance(found.get("transport"), dict):
        raise ListenerUnready(f"config_file {path} has no section `transport`; {example}")
    if others := sorted(map(str, found.keys() - {"transport"})):
        raise ListenerUnready(f"config_file {path} has sections without effect here: {others}; remove them")
    section = {str(name): value for name, value in found["transport"].items()}
    kind = section.pop("type", None)
    makers = {"http": _http_of, "file": _file_of, "kafka": _kafka_of}
    if kind not in makers:
        raise ListenerUnready(
            f"config_file {path} has the transport {kind!r}, which cannot report a failure; {example}"
        )
    try:
        return makers[kind](section)
    except (ValueError, TypeError, KeyError, RuntimeError, ImportError) as error:
        raise ListenerUnready(f"config_file {path}: {kind} is not usable ({error}); correct it") from error


# --- the transports ----------------------------------------------------------------------------


def _http_of(section: dict[str, Any]) -> Sender:
    return _http(HttpConfig.from_dict({"retry": dict(_ONCE), **section}))


def _refuse_redirect(answer: requests.Response, **_: Any) -> None:
    if answer.is_redirect:
        raise requests.HTTPError("a redirect", response=answer)


def _http(config: HttpConfig) -> Sender:
    config.session = requests.Session()
    config.session.hooks["response"].append(_refuse_redirect)
    transport = HttpTransport(config)

    def send(event: RunEvent) -> Result:
        try:
            transport.emit(event)
        except requests.HTTPError as error:
            answer = error.response
            code = "an error" if answer is None else f"{answer.status_code} {answer.reason}"
            return Failed(f"{config.url} answered {code[:_SHOWN]}. Look at the log of that server.")
        except (requests.RequestException, OSError) as error:
            reason = str(error)[:_SHOWN]
            return Unknown(f"{config.url} gave no answer ({reason}). Start it, or correct `url`.")
        return Done()

    return send


def _file_of(section: dict[str, Any]) -> Sender:
    config = FileConfig.from_dict({"append": True, **section})
    transport = FileTransport(config)

    def send(event: RunEvent) -> Result:
        try:
            transport.emit(event)
        except (OSError, RuntimeError) as error:
            return Unknown(f"{error}. Make room, or correct the path.")
        return Done()

    return send


def _kafka_of(section: dict[str, Any]) -> Sender:
    from confluent_kafka import Producer

    config = KafkaConfig.from_dict(section)
    settings = {"enable.idempotence": True, "delivery.timeout.ms": _DELIVERY, **config.config}
    opened: list[Producer] = []

    def send(event: RunEvent) -> Result:
        if not opened:
            opened.append(Producer(settings))
        # The order of the events of a job is that of its partition.
        key = config.messageKey or f"run:{event.job.namespace}/{event.job.name}"
        return _produce(opened[0], config.topic, key, Serde.to_json(event).encode())

    return send


def _produce(producer: Any, topic: str, key: str, value: bytes) -> Result:
    """Wait until Kafka has a record. Without its acknowledgement, the record may be there."""
    from confluent_kafka import KafkaException

    judged: list[str] = []
    try:
        # An error of this client cannot be compared with None.
        producer.produce(
            topic, value, key, on_delivery=lambda error, _: judged.append("" if error is None else str(error))
        )
        producer.flush(_LONGEST)
    except (KafkaException, BufferError) as error:
        judged.append(str(error))
    if judged == [""]:
        return Done()
    reasons = "; ".join(judged)[:_SHOWN]
    return Unknown(f"Kafka has not acknowledged the event for {topic} ({reasons}). Look at that Kafka.")
