"""Logging with structlog and the standard library: one line per event, to stderr, without secrets."""

import logging
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final, TextIO

import structlog
from structlog.types import EventDict, Processor, WrappedLogger

from sluicegate.coordinator.settings.model import LogSettings
from sluicegate.kafka.outages import quiet_clients

HIDDEN: Final = "[secret]"
_URL_CREDENTIALS: Final = re.compile(r"(?<=://)[^\s/@]+@")
_CHATTY: Final = ("aiokafka", "asyncio", "kafka")
_SHARED: Final[tuple[Processor, ...]] = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
)
"""Processors of all events, from structlog and from the standard library."""


class Redactor:
    """Processor that replaces known secrets, and credentials before the `@` of a URL."""

    def __init__(self, secrets: Iterable[str]) -> None:
        longest_first = sorted({secret for secret in secrets if secret}, key=len, reverse=True)
        self._secrets = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def __call__(self, _: WrappedLogger, __: str, event: EventDict) -> EventDict:
        """Redact the values of an event."""
        return {key: self._value(value) for key, value in event.items()}

    def text(self, text: str) -> str:
        """Redact a text."""
        if self._secrets is not None:
            text = self._secrets.sub(HIDDEN, text)
        return _URL_CREDENTIALS.sub(f"{HIDDEN}@", text)

    def _value(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self._value(item) for key, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self._value(item) for item in value]
        # Convert like the renderer does, so that no secret passes inside an object.
        return self.text(repr(value))


def configure_logging(settings: LogSettings, secrets: Iterable[str], stream: TextIO | None = None) -> None:
    """Send all logging to one stream (default: stderr), with the level and format of the settings.

    `secrets` never appear: see `Settings.secrets`. May be called again; the last call is in force.
    """
    target = sys.stderr if stream is None else stream
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(_formatter(Redactor(secrets), _renderer(settings, target)))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(level if level <= logging.DEBUG else max(level, logging.WARNING))
    # At the level `debug`, the client of AWS shows signatures, and keys in answers.
    logging.getLogger("botocore").setLevel(max(level, logging.INFO))
    quiet_clients()
    logging.captureWarnings(True)


def _formatter(redactor: Redactor, renderer: Processor) -> logging.Formatter:
    """Return the formatter of all lines. Exceptions become texts first, so that it redacts theirs, too."""
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*_SHARED, structlog.stdlib.ExtraAdder()],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.StackInfoRenderer(),
            structlog.processors.format_exc_info,
            redactor,
            renderer,
        ],
    )


def _renderer(settings: LogSettings, target: TextIO) -> Processor:
    if settings.format == "json":
        return structlog.processors.JSONRenderer(ensure_ascii=False)
    # structlog's default formatter shows local variables, which may have secrets.
    return structlog.dev.ConsoleRenderer(
        colors=target.isatty(), exception_formatter=structlog.dev.plain_traceback
    )
