"""Settings of the connection to Kafka, read from options named as in Kafka's own clients."""

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import ValidationError

from sluicegate.kafka.settings import Connection, Text, UnusableFile, plain
from sluicegate.writer_hooks.errors import BadOption

PREFIX: Final = "kafka."

_SECURITY: Final = {
    "sasl.kerberos.service.name": "kerberos_service_name",
    "sasl.mechanism": "mechanism",
    "sasl.oauth.token.file": "token_file",
    "sasl.password": "password",
    "sasl.password.file": "password_file",
    "sasl.username": "username",
    "security.protocol": "protocol",
    "ssl.ca.location": "ca_file",
    "ssl.certificate.location": "certificate_file",
    "ssl.key.location": "key_file",
    "ssl.key.password": "key_password",
    "ssl.key.password.file": "key_password_file",
}
_FIELDS: Final = {
    "bootstrap.servers": "bootstrap_servers",
    "client.id": "client_id",
    "compression.type": "compression_type",
    "request.timeout.ms": "request_timeout",
    **_SECURITY,
}
_OPTIONS: Final = {field: f"{PREFIX}{option}" for option, field in _FIELDS.items()}


class KafkaSettings(Connection):
    """Connection of the hooks to Kafka. Pickled to executors.

    A secret that a file holds is read on the machine that connects, and does not travel.
    """

    client_id: Text = "sluicegate-hooks"
    compression_type: Literal["zstd", "lz4", "gzip", "none"] = "zstd"

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> "KafkaSettings":
        """Read the options that start with `kafka.`. Raises BadOption for what is unknown or malformed."""
        given: dict[str, Any] = {}
        security: dict[str, Any] = {}
        for option, value in options.items():
            name = option.lower().removeprefix(PREFIX)
            if not option.lower().startswith(PREFIX):
                continue
            if name not in _FIELDS:
                raise BadOption(
                    f"unknown option {PREFIX}{name}; known are {PREFIX}{{{', '.join(sorted(_FIELDS))}}}"
                )
            (security if name in _SECURITY else given)[_FIELDS[name]] = value
        if "request_timeout" in given:
            given["request_timeout"] = _seconds(given["request_timeout"])
        try:
            return cls.model_validate({**given, "security": security})
        except ValidationError as error:
            raise BadOption("; ".join(_problems(error, {**given, **security}))) from None

    def client_options(self) -> dict[str, Any]:
        """Return the keyword arguments of all clients of aiokafka. Reads files; raises BadOption."""
        try:
            return super().client_options()
        except UnusableFile as error:
            raise BadOption(f"the option {_OPTIONS[error.field]}: {_with_options(error.problem)}") from error


def _seconds(milliseconds: str) -> float:
    if not (milliseconds.isascii() and milliseconds.isdigit() and int(milliseconds)):
        name = _OPTIONS["request_timeout"]
        raise BadOption(f"the option {name} must be a whole number above 0: {milliseconds!r}")
    return int(milliseconds) / 1000


def _problems(error: ValidationError, given: Mapping[str, Any]) -> list[str]:
    found = []
    for detail in error.errors(include_url=False, include_input=False):
        field = str(detail["loc"][-1])
        option = _OPTIONS.get(field)
        if option is None:
            found.append(_with_options(plain(detail["msg"])))
        elif field not in given:
            found.append(f"the option {option} is missing: host:port, several with commas")
        else:
            shown = "" if "password" in field else f": {given[field]!r}"
            found.append(f"the option {option} {plain(detail['msg'])}{shown}")
    return found


def _with_options(text: str) -> str:
    """Put the names of options in the places of the names of fields."""
    return re.sub(r"`(\w+)`", lambda found: _OPTIONS[found[1]], text)
