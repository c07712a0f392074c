"""Settings: a TOML file, overridden by the environment (`SLUICEGATE_SECTION__KEY`).

Unknown keys are errors. All problems are reported together, at the start. Each section is one model below,
and its attribute docstrings are the reference page."""

import hashlib
import hmac
import json
import math
import os
import re
import socket
import tomllib
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self
from urllib.parse import unquote, urlsplit

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FilePath,
    PrivateAttr,
    SecretStr,
    SerializeAsAny,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from sluicegate.coordinator.settings.sources import EnvironmentSource, Section, Text, explain
from sluicegate.coordinator.settings.sources import SettingsError as SettingsError
from sluicegate.events.models import MOST_FURTHER_TABLES, Name, StreamPolicy
from sluicegate.events.orders import printable
from sluicegate.events.problems import Cause
from sluicegate.events.signing import Mode, Signatures
from sluicegate.failpoints.points import parse as parse_failpoints
from sluicegate.kafka.settings import Connection, Security, UnusableFile, check_secrets, read_secret
from sluicegate.kafka.topics import (
    BROKERS_FACTOR,
    DEAD_LETTER_EXTRA_BYTES,
    MAX_MESSAGE_BYTES,
    TopicNames,
    TopicSpec,
    largest_state_message,
    topic_specs,
)
from sluicegate.lakes.registry import DEFAULT_FORMAT
from sluicegate.listeners.port import ListenerRefused, Options, listener_type

# Durations and sizes as people write them in settings.

_SECONDS: Final = {
    "ms": 0.001,
    "s": 1.0,
    "m": 60.0,
    "h": 3_600.0,
    "d": 86_400.0,
    **dict.fromkeys(("day", "days"), 86400.0),
}
_BYTES: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_QUANTITY: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


def parse_seconds(value: object) -> float:
    """Parse a duration: a number of seconds, or text such as `500ms`, `30s`, `15m`, `2h`, `7d`.

    Raises ValueError for other text, and for values that are not above 0.
    """
    problem = "must be a duration above 0, such as 2.5 (seconds), 500ms, 30s, 15m, 2h or 7d"
    seconds = _quantity(value, _SECONDS, "s", problem)
    if not (math.isfinite(seconds) and seconds > 0):
        raise ValueError(problem)
    return seconds


def parse_seconds_or_zero(value: object) -> float:
    """Parse a duration as `parse_seconds` does, or 0. Raises ValueError."""
    if value in (0, "0", "0s", "0ms"):
        return 0.0
    try:
        return parse_seconds(value)
    except ValueError as error:
        raise ValueError(f"{error}, or 0") from None


def parse_bytes(value: object) -> int:
    """Parse a size: a whole number of bytes, or text such as `64KiB`, `256MiB`, `2GiB`. Raises ValueError."""
    problem = "must be a size above 0, such as 1048576 (bytes), 64KiB, 256MiB or 2GiB"
    size = _quantity(value, _BYTES, "B", problem)
    if not (math.isfinite(size) and size >= 1 and size == int(size)):
        raise ValueError(problem)
    return int(size)


def _quantity(value: object, units: dict[str, float] | dict[str, int], unit: str, problem: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    factor = units.get(match[2] or unit) if match else None
    if match is None or factor is None:
        raise ValueError(problem)
    return float(match[1]) * factor


def words_of_bytes(size: int) -> str:
    """Format a size in the largest fitting unit, rounded: `12 MiB`."""
    unit, factor = next(
        ((unit, factor) for unit, factor in reversed(_BYTES.items()) if size >= factor), ("B", 1)
    )
    return f"{round(size / factor, 1):g} {unit}"


_Duration = Annotated[str, Field(pattern=r"^\s*\d+(\.\d+)?\s*(ms|s|m|h|d|days?)?\s*$")]
_Size = Annotated[str, Field(pattern=r"^\s*\d+(\.\d+)?\s*(B|KiB|MiB|GiB)?\s*$")]

Seconds = Annotated[float, BeforeValidator(parse_seconds, json_schema_input_type=float | _Duration)]
"""A duration in seconds, above 0."""

SecondsOrZero = Annotated[
    float, BeforeValidator(parse_seconds_or_zero, json_schema_input_type=float | _Duration)
]
"""A duration in seconds, or 0."""

Bytes = Annotated[int, BeforeValidator(parse_bytes, json_schema_input_type=int | _Size)]
"""A size in bytes, above 0."""


# Settings of the signatures on decisions and orders.

_SHORTEST: Final = 32
"""Characters of a key: 32 hexadecimal digits are 128 bits."""
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_MAKE: Final = "make one: openssl rand -hex 32"


class SigningSettings(Section):
    """Signatures on decisions and orders, so that a job cannot forge them. All members need the same values.

    `off`: none are made or checked. `accepted`: they are made, and a record without a valid one counts, and
    enters a metric. `required`: a record without a valid one is a dead letter.
    """

    mode: Literal["off", "accepted", "required"] = "off"
    """Rule for records without a valid signature."""
    key_files: tuple[Path, ...] = ()
    """Files with one key each. The first one signs, and all of them verify.

    The id of a key is the name of its file without the ending.
    """
    since: AwareDatetime | None = None
    """Records that were appended before this time need no signature. Default: all need one."""
    retired: dict[str, AwareDatetime] = Field(default_factory=dict)
    """By id of a key, the time from which on its signatures do not count any more."""

    _keys: dict[str, SecretStr] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _read_keys(self) -> Self:
        found: dict[str, SecretStr] = {}
        for file in self.key_files:
            name = file.name.partition(".")[0]
            if not _ID.fullmatch(name):
                raise ValueError(f"`key_files`: {file}: its name begins with no id of letters and digits")
            if name in found:
                raise ValueError(f"`key_files`: two files have the id {name}")
            try:
                text = read_secret("key_files", file)
            except UnusableFile as error:
                raise ValueError(str(error)) from None
            if len(text) < _SHORTEST:
                raise ValueError(f"`key_files`: {file} has less than {_SHORTEST} characters; {_MAKE}")
            found[name] = SecretStr(text)
        if self.mode != "off" and not found:
            raise ValueError(f"`mode` is {self.mode}, but `key_files` names no key; {_MAKE}")
        if unknown := sorted(self.retired.keys() - found.keys()):
            raise ValueError(f"`retired` names {unknown[0]}, and no file of `key_files` has that id")
        if next(iter(found), None) in self.retired:
            raise ValueError("`retired` names the first key of `key_files`, which signs; list another first")
        self._keys.update(found)
        return self

    def keys(self) -> Mapping[str, bytes]:
        """Return the keys by id, the one that signs first."""
        return {name: key.get_secret_value().encode() for name, key in self._keys.items()}

    def secrets(self) -> list[SecretStr]:
        """Return the keys."""
        return list(self._keys.values())


def millis(moment: datetime | None) -> int:
    """Return a time in milliseconds since the Unix epoch; 0 for none."""
    return 0 if moment is None else round(moment.timestamp() * 1000)


# Settings of the connection to Kafka.

MIN_MESSAGE_BYTES: Final = 64 << 10


class KafkaSecurity(Security):
    """Encryption and login, with files of this machine: they are checked when the settings are loaded."""

    reads_secrets_early: ClassVar[bool] = True

    ca_file: FilePath | None = None
    certificate_file: FilePath | None = None
    key_file: FilePath | None = None


def _check_topic(value: str) -> str:
    return TopicNames(value).prefix


def _check_factor(value: int) -> int:
    if value == 0:
        raise ValueError(f"must be 1 or more, or {BROKERS_FACTOR}: the brokers choose")
    return value


class KafkaSettings(Connection):
    """The connection to Kafka, the group, and the topics."""

    group_id: Text = "sluicegate"
    """Consumer group of the coordinators; its members share the streams."""
    topic_prefix: Annotated[str, AfterValidator(_check_topic)] = "sluicegate"
    """First part of the names of the topics: `PREFIX.events`, `.commits`, `.state` and `.dead-letters`."""
    partitions: Annotated[int, Field(ge=1, le=10_000)] = 12
    """Of the events topic when it is created; it must not change afterwards."""
    replication_factor: Annotated[int, Field(ge=BROKERS_FACTOR, le=100), AfterValidator(_check_factor)] = (
        BROKERS_FACTOR
    )
    """Of topics when they are created. -1: the brokers choose; 3 is usual."""
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


# Settings of the signatures of one process, as it publishes them: with fingerprints in place of keys.

SIGNING_KEYS_HEADER: Final = "sluicegate-signing-keys"
"""Settings of the signatures of the coordinator that wrote a state record; absent: off."""
_DOMAIN: Final = b"sluicegate fingerprint of a key 1"
_DIGITS: Final = 16


class MemberKeys(BaseModel):
    """Settings of the signatures of one member, with fingerprints in place of keys."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    place: str
    """Host and process, for people."""
    mode: Mode = "off"
    keys: dict[str, str] = {}
    """Fingerprint of each key by its id. The first one signs."""
    retired: tuple[str, ...] = ()
    since: int = 0
    """Records that were appended before this time need no signature; milliseconds since the Unix epoch."""

    @property
    def signs_with(self) -> tuple[str, str] | None:
        """Id and fingerprint of the key that signs; None if nothing is signed."""
        return None if self.mode == "off" else next(iter(self.keys.items()), None)


def own_keys(kafka: KafkaSettings, place: str | None = None) -> MemberKeys:
    """Return the facts of this process; `place` names it in sentences."""
    signing = kafka.signing
    return MemberKeys(
        place=place or f"{socket.gethostname()} (process {os.getpid()})",
        mode=signing.mode,
        keys={name: _fingerprint(key) for name, key in signing.keys().items()},
        retired=tuple(signing.retired),
        since=millis(signing.since),
    )


def keys_of(headers: Iterable[tuple[str, bytes | None]]) -> MemberKeys | None:
    """Return the keys of the coordinator that wrote a state record; None if it named none."""
    try:
        return MemberKeys.model_validate_json(dict(headers).get(SIGNING_KEYS_HEADER) or b"")
    except ValidationError:
        return None


def _fingerprint(key: bytes) -> str:
    return hmac.new(key, _DOMAIN, hashlib.sha256).hexdigest()[:_DIGITS]


# Settings of the connection to Redis.

_SCHEMES: Final = ("redis", "rediss", "unix")


def _host_and_port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port) if port.isascii() and port.isdigit() else 0


class RedisSettings(Section):
    """Redis for the views of status and dashboards; no decision depends on it."""

    url: SecretStr
    """`redis://[user:password@]host:port/db`, `rediss://` (TLS) or `unix://`."""
    sentinels: tuple[Text, ...] = ()
    """`host:port` of each Sentinel. The host of `url` is then the name of the primary, without a port."""
    username: Text | None = None
    """ACL user, if `url` has none. Default: the default user."""
    password: SecretStr | None = None
    """Password, if `url` has none."""
    password_file: Path | None = None
    """File with the password, instead of `password`."""
    ca_file: FilePath | None = None
    """Trusted authorities, PEM. Default: those of the system."""
    certificate_file: FilePath | None = None
    """Client certificate, PEM."""
    key_file: FilePath | None = None
    """Key of the client certificate, PEM. Default: it is in `certificate_file`."""
    key_password: SecretStr | None = None
    """Password of the key."""
    key_password_file: Path | None = None
    """File with the password of the key, instead of `key_password`."""
    key_prefix: Text = "sluicegate"
    """First part of the keys in Redis."""
    timeout: Seconds = 2.0
    """Time after which a request to Redis has failed."""

    @model_validator(mode="before")
    @classmethod
    def _read_secrets(cls, values: object) -> object:
        return check_secrets(values, "password", "key_password", read=True)

    @field_validator("sentinels")
    @classmethod
    def _check_sentinels(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for each in value:
            host, port = _host_and_port(each)
            if not host or not 0 < port < 65_536:
                raise ValueError("must be host:port each")
        return value

    @field_validator("url")
    @classmethod
    def _check_url(cls, value: SecretStr) -> SecretStr:
        try:
            parts = urlsplit(value.get_secret_value())
            usable = parts.scheme in _SCHEMES and bool(parts.hostname or parts.path)
            usable = usable and (parts.port is None or parts.port > 0)
        except ValueError:
            usable = False
        if not usable:
            raise ValueError("must look like redis://host:6379/0, rediss://... or unix:///path")
        return value

    @model_validator(mode="after")
    def _complete(self) -> Self:
        parts = urlsplit(self.url.get_secret_value())
        if self.password is not None and parts.password is not None:
            raise ValueError("`password` is set, and `url` has one too; set one of them")
        if self.username is not None and parts.username:
            raise ValueError("`username` is set, and `url` has one too; set one of them")
        if self.username is not None and self.password is None:
            raise ValueError("`username` is set, but neither `password` nor `password_file` is")
        if self.sentinels and (parts.scheme != "redis" or parts.port is not None):
            raise ValueError(
                "`sentinels` is set, so `url` must look like redis://NAME/0, with the name of the primary; "
                "TLS is not supported with Sentinels"
            )
        tls = [name for name in ("ca_file", "certificate_file", "key_file") if getattr(self, name)]
        if tls and parts.scheme != "rediss":
            raise ValueError(f"`{tls[0]}` is set, but `url` is not encrypted; begin it with rediss://")
        if self.key_file is not None and self.certificate_file is None:
            raise ValueError("`key_file` is set, but `certificate_file` is not; set both or none")
        return self

    def client_options(self) -> dict[str, Any]:
        """Return the keyword arguments of `Redis.from_url` except the address: for the client only."""
        options: dict[str, Any] = {}
        if self.sentinels:
            options["sentinels"] = [_host_and_port(each) for each in self.sentinels]
        if self.username is not None:
            options["username"] = self.username
        if self.password is not None:
            options["password"] = self.password.get_secret_value()
        if not self.shown.startswith("rediss:"):
            return options
        # Without a password OpenSSL would prompt for one on the terminal.
        word = self.key_password.get_secret_value() if self.key_password is not None else ""
        files = {
            "ssl_ca_certs": self.ca_file,
            "ssl_certfile": self.certificate_file,
            "ssl_keyfile": self.key_file or self.certificate_file,
        }
        options |= {name: str(file) for name, file in files.items() if file is not None}
        return {**options, "ssl_check_hostname": True, "ssl_password": word}

    def secrets(self) -> list[SecretStr]:
        """Return the secrets other than the whole address."""
        in_url = urlsplit(self.url.get_secret_value()).password
        found = [self.password, self.key_password, SecretStr(in_url) if in_url else None]
        return [each for each in found if each is not None]

    @property
    def shown(self) -> str:
        """The address without user and password."""
        parts = urlsplit(self.url.get_secret_value())
        if self.sentinels:
            return (
                f"the primary {parts.netloc.rpartition('@')[2]} of the Sentinels {', '.join(self.sentinels)}"
            )
        if parts.scheme == "unix":
            return f"unix://{parts.path}"
        return f"{parts.scheme}://{parts.hostname}:{parts.port or 6379}{parts.path}"


# Settings of the HTTP endpoints: address, TLS and tokens.

REALM: Final = "sluicegate"
"""Name of what the tokens protect, in the challenge of HTTP."""
_SHORTEST_TOKEN: Final = 16
"""Characters of a token."""


class CannotServe(OSError):
    """The server cannot listen on the address, or use its files; the text has the key to change."""


class HttpSettings(Section):
    """The HTTP endpoints /livez, /readyz, /metrics and /status, the page and its interface."""

    host: Text = "127.0.0.1"
    """Address to listen on; `0.0.0.0` in a container."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 8080
    """0: any free port; the log has its number."""
    token_files: tuple[Path, ...] = ()
    """Files with one token each; every one of them is valid. Default: no token is needed.

    SIGHUP reads this setting and the files again. Commands send the first one.
    """
    open_probes: bool = True
    """True: /livez and /readyz need no token."""
    certificate_file: FilePath | None = None
    """Certificate of the server with its chain, PEM; with it, the endpoints have TLS alone. SIGHUP reads it
    again."""
    key_file: FilePath | None = None
    """Its private key without a password, PEM. Default: `certificate_file` has it."""
    ca_file: FilePath | None = None
    """Authorities that a command trusts when it asks the coordinator. Default: those of the system."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.key_file is not None and self.certificate_file is None:
            raise ValueError("`key_file` is set, but `certificate_file` is not; set both or none")
        return self


def read_tokens(http: HttpSettings) -> tuple[bytes, ...]:
    """Read the tokens. Raises UnusableFile."""
    return tuple(_read_token(file) for file in http.token_files)


def _read_token(file: Path) -> bytes:
    text = read_secret("http.token_files", file).strip()
    if len(text) < _SHORTEST_TOKEN:
        raise UnusableFile(
            "http.token_files",
            f"{file} has less than {_SHORTEST_TOKEN} characters; make one: openssl rand -hex 32",
        )
    # A header has one line, and clients end a token at a blank: no request could send such a token.
    if any(each.isspace() or not each.isprintable() for each in text):
        raise UnusableFile(
            "http.token_files",
            f"{file} has a line break, a blank or an invisible character inside its token; "
            "write one token per file; list several files",
        )
    return text.encode()


# Settings of listeners: common keys, and the keys of the type, which the type's own model checks.

COMMON: Final = ("type", "table", "start", "skip_through", "revision")


class ListenerSettings(Section):
    """One listener of a stream. The keys beside these belong to its type."""

    type: Text
    """Name of the type of listeners, such as `webhook`."""
    table: Name | None = None
    """Name of the further table that the listener belongs to; None: the stream's own one."""
    start: Literal["new", "earliest"] = "new"
    """First outcome of a listener without a record: the next one, or the first that the topic has."""
    skip_through: Annotated[int, Field(ge=0)] = 0
    """Newest decision whose actions are skipped: the way on after a loss, or past an outcome."""
    revision: Annotated[int, Field(ge=0)] = 0
    """Raise it to let a listener try again that has stopped, if nothing else changes."""
    options: SerializeAsAny[Options]
    """Keys of the type."""

    @model_validator(mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        if not isinstance(value, Mapping) or not isinstance(value.get("type"), str):
            return value
        if isinstance(value.get("options"), Options):
            return value
        own = {key: each for key, each in value.items() if key not in COMMON}
        try:
            model = listener_type(value["type"]).options
            options = model.model_validate(own)
        except ListenerRefused as error:
            raise ValueError(str(error)) from None
        except ValidationError as error:
            raise ValueError(_explained(error, model)) from None
        return {**{key: value[key] for key in COMMON if key in value}, "options": options}

    @property
    def fingerprint(self) -> str:
        """Return a digest of the settings without secrets; with another one, a stopped listener tries."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _explained(error: ValidationError, model: type[Options]) -> str:
    """Format the problems of a type's keys. Values are never shown."""
    lines = []
    for each in error.errors(include_url=False, include_input=False, include_context=False):
        key, kind = ".".join(str(part) for part in each["loc"]), each["type"]
        if kind == "missing":
            lines.append(f"`{key}` is required")
        elif kind == "extra_forbidden":
            known = ", ".join((*COMMON, *model.model_fields))
            lines.append(f"unknown key `{key}`; known here: {known}")
        else:
            lines.append(f"`{key}`: {each['msg'].removeprefix('Value error, ')}")
    return "; ".join(lines)


_SOUNDS_SECRET: Final = re.compile(
    r"secret|passw|token|key|credential|signature|authorization", re.IGNORECASE
)
_SHORTEST_SECRET: Final = 6


class LogSettings(Section):
    """Log output on stderr."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is written."""
    format: Literal["json", "text"] = "json"
    """`json`: an object for each line. `text`: for people."""


class MemorySettings(Section):
    """Limits of the memory."""

    body_budget: Bytes = 256 << 20
    """Bytes of event bodies in memory.

    Bodies over the limit are dropped, and fetched again for their commit.
    """


class JanitorSettings(Section):
    """Deletion of files that no commit will include."""

    enabled: bool | None = None
    """True if the coordinator deletes them itself; `sluicegate orphans` does it on request.

    Default: for tables of Paimon, Iceberg and Delta on a file system or in S3. Tests prove these.
    """
    grace: Seconds = 86_400.0
    """Minimum age of such a file, and of the record that made it an orphan."""
    interval: Seconds = 21_600.0
    """Time between two sweeps; each sweep reads the log of the stream."""


def _flatten(value: object) -> object:
    """Join nested tables to dotted keys: TOML parses an unquoted `s3.region` as a table in a table.

    Both spellings mean the same option.
    """
    if not isinstance(value, Mapping):
        return value
    flat: dict[str, object] = {}
    for key, item in value.items():
        inner = _flatten(item)
        if isinstance(inner, Mapping):
            flat.update({f"{key}.{name}": held for name, held in inner.items()})
        else:
            flat[key] = inner
    return flat


_SWEPT_FORMATS: Final = ("paimon", "iceberg", "delta")
_SWEPT_SCHEMES: Final = ("", "file", "s3", "s3a", "s3n")
"""Formats and stores whose orphans tests prove."""


def _check_distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    if len({*names}) < len(names):
        raise ValueError("must name each region once")
    return names


class TableSettings(Section):
    """A further table of a stream, in the catalog of its anchor."""

    identifier: Text
    """NAMESPACE.TABLE, as in the catalog."""
    allowed_locations: tuple[Text, ...] = ()
    """URI prefixes of data files, beside the table's own location; files elsewhere are refused."""


def _named(value: object) -> object:
    return {"identifier": value} if isinstance(value, str) else value


_MOST_NAMES: Final = 16_000
"""Characters of the names of further tables. With that, the vector of 500 tables has 32 kB."""


class StreamSettings(Section):
    """One stream: its table, and the rules of its commits."""

    format: Name = DEFAULT_FORMAT
    """Name of the adapter of the table format."""
    table: Text
    """URI of the table, or an absolute path."""
    tables: Annotated[
        dict[
            Name,
            Annotated[TableSettings, BeforeValidator(_named, json_schema_input_type=Text | TableSettings)],
        ],
        Field(max_length=MOST_FURTHER_TABLES),
    ] = Field(default_factory=dict)
    """Further tables that each commit changes together with `table`: by a name of your choice, the name of
    each in the same catalog. Iceberg in an SQL catalog, or an atomic REST catalog; docs/tables.md has the
    promise."""
    allowed_locations: tuple[Text, ...] = Field(default=(), validate_default=True)
    """URI prefixes of data files, beside the table's own location; files elsewhere are refused."""
    file_names: Literal["checked", "unchecked"] = "checked"
    """`checked`: the name of a data file must have the digest of the attempt that wrote it.

    `unchecked` is for writers that cannot choose names. A file that two checkpoints name is then committed
    twice. Only a commit that has both checkpoints is refused.
    """
    owner: Annotated[str, Field(max_length=200), AfterValidator(printable)] = ""
    """Team or person who answers for the stream, such as a mail address. It is only shown."""
    commit_user: str = ""
    """Commit user in the table's history. Default: `sluicegate-NAME`."""
    partial: Literal["never", "allow"] = "never"
    """`never`: every commit waits for all regions. `allow`: a late region stays at its last checkpoint."""
    max_consecutive_fallbacks: Annotated[int, Field(ge=1)] = 3
    """Maximum number of commits in a row that may leave a region out; the next one must be full."""
    max_failure_ratio: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Largest share of the active regions that one commit may leave out."""
    alignment_timeout: Seconds = 10.0
    """Time that a due commit waits for a region that is expected in it, and has given no answer."""
    alignment_timeouts: dict[Name, Seconds] = Field(default_factory=dict)
    """The same for single regions, by name."""
    silence: Seconds = 60.0
    """Time without a sign of a driver that has announced heartbeats, after which no commit waits for it."""
    max_position_age: Seconds = 3_600.0
    """Time for which commits leave a region out, after which that is a condition."""
    commit_interval: SecondsOrZero = 0.0
    """Shortest time between two commits, unless one of the maxima is reached; 0: commit at once."""
    commit_max_files: Annotated[int, Field(ge=1)] | None = None
    """Number of files that wait for a commit, at which it is due before `commit_interval`."""
    commit_max_bytes: Bytes | None = None
    """Size of the files that wait for a commit, at which it is due before `commit_interval`."""
    future_limit: Annotated[SecondsOrZero, Field(le=400_000_000_000)] = 86_400.0
    """A watermark that is later than this after its event counts as none: one wrong time would end days
    before their rows are there. Raise it for streams of times to come, such as bookings."""
    longest_wait: Seconds = 86_400.0
    """Longest time from a data file to its commit that is planned for, stalls included.

    `sluicegate check` compares it with the age from which cleaners of other products delete files.
    """
    regions: Annotated[tuple[Name, ...], AfterValidator(_check_distinct)] = ()
    """Regions that may register. Default: any."""
    max_files_per_checkpoint: Annotated[int, Field(ge=1)] = 100_000
    """A checkpoint with more files is left out with all after it, and a reason: it would take long."""
    max_pending_bytes: Bytes = 4 << 30
    """Bytes of events in one commit, held in memory. A commit takes the checkpoints that fit.

    A region is left out, with a reason, if its next checkpoint alone does not fit.
    """
    max_events_per_second: Annotated[int, Field(ge=1)] | None = None
    """Events a second of this stream, on average over 10 seconds. Default: no limit.

    Above it, the stream is read at this rate, and commits again when it has caught up. Its events stay in
    Kafka, and other streams are not held.
    """
    janitor: JanitorSettings = JanitorSettings()
    listeners: dict[Name, ListenerSettings] = Field(default_factory=dict)
    """Work after each commit, by a name of your choice; docs/listeners.md has the types."""
    options: Annotated[
        dict[str, SecretStr],
        BeforeValidator(_flatten, json_schema_input_type=dict[str, str | dict[str, Any]]),
    ] = Field(default_factory=dict)
    """Options of the table format's adapter. All are kept out of logs, because they may be credentials."""

    @property
    def has_janitor(self) -> bool:
        """True if the coordinator deletes the orphans of the stream itself."""
        if self.janitor.enabled is not None:
            return self.janitor.enabled
        return self.format in _SWEPT_FORMATS and urlsplit(self.table).scheme in _SWEPT_SCHEMES

    @field_validator("table", "allowed_locations")
    @classmethod
    def _check_absolute(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        for location in (value,) if isinstance(value, str) else value:
            if not urlsplit(location).scheme and not os.path.isabs(location):
                raise ValueError("must be a URI or an absolute path: writers run elsewhere")
        return value

    @field_validator("tables")
    @classmethod
    def _check_names(cls, value: dict[str, TableSettings]) -> dict[str, TableSettings]:
        if (length := sum(map(len, value))) > _MOST_NAMES:
            raise ValueError(
                f"the names have {length} characters together, and may have {_MOST_NAMES}: each commit "
                "writes them into a property of the table, for readers. Give the tables shorter names"
            )
        return value

    @model_validator(mode="after")
    def _check_listeners(self) -> Self:
        for name, each in self.listeners.items():
            if each.table is not None and each.table not in self.tables:
                raise ValueError(
                    f"listeners.{name}.table: the stream has no further table {each.table!r}. It has: "
                    f"{', '.join(sorted(self.tables)) or 'none'}. Without the key, a listener belongs to the "
                    "stream's own table"
                )
        return self

    @model_validator(mode="after")
    def _check_policy(self) -> Self:
        try:
            self.policy()
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        return self

    @field_validator("allowed_locations", mode="after")
    @classmethod
    def _as_uris(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        own = (info.data["table"],) if "table" in info.data else ()
        uris = (
            location if urlsplit(location).scheme else Path(os.path.abspath(location)).as_uri()
            for location in (*own, *value)
        )
        return tuple(dict.fromkeys(uris))

    def adapter_options(self) -> dict[str, str]:
        """Return the adapter's options with their secrets: for the adapter only."""
        return {name: value.get_secret_value() for name, value in self.options.items()}

    def policy(self) -> StreamPolicy:
        """Return the policy of these settings; its number has no meaning."""
        return StreamPolicy(
            number=0,
            partial=self.partial,
            max_consecutive_fallbacks=self.max_consecutive_fallbacks,
            max_failure_ratio=self.max_failure_ratio,
            regions=self.regions,
            allowed_locations=self.allowed_locations,
            file_names=self.file_names,
            future_limit=round(self.future_limit * 1000),
        )


def _places(stream: StreamSettings) -> list[str]:
    """Return the address of a stream's table, and the entries of all its tables in their catalog."""
    options = stream.adapter_options()
    names = [each.identifier for each in stream.tables.values()] + [options.get("identifier", "")]
    entries = [f"{options['uri']} {each}" for each in names if each] if "uri" in options else []
    return [stream.table.rstrip("/"), *entries]


class Settings(BaseSettings):
    """All settings of the service. The constructor reads neither file nor environment; `load` does."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    kafka: KafkaSettings
    redis: RedisSettings | None = None
    """None: no view is written for other services; the coordinator itself does not need one."""
    http: HttpSettings = HttpSettings()
    log: LogSettings = LogSettings()
    memory: MemorySettings = MemorySettings()
    commit_threads: Annotated[int, Field(ge=1, le=1_000)] = 8
    """Number of streams that can commit at the same time, not counting streams whose storage hangs."""
    state_record_interval: Seconds = 3_600.0
    """Time between two state records.

    At most a quarter of the retention of the tables' snapshots.
    """
    table_check_interval: Seconds = 60.0
    """Time between two checks of an idle stream's table for a replacement or a rollback, and between two
    comparisons of its further tables with the log.

    At most a quarter of the retention of the tables' snapshots.
    """
    replay_window: Seconds = 30 * 86_400.0
    """Age up to which committed events stay in the log for replays; longer than the janitor's `grace`."""
    stall_after: Seconds = 30.0
    """Time that a step may fail and be retried until the stream counts as stalled."""
    failpoints: str = ""
    """For tests of failures: `name=action;...`, see docs/faults.md. Must be empty in production."""
    failpoints_log: str = ""
    """File that every hit of a failpoint is written to, if there are failpoints."""
    streams: dict[Name, StreamSettings]

    @field_validator("failpoints")
    @classmethod
    def _check_failpoints(cls, value: str) -> str:
        parse_failpoints(value)
        return value

    @field_validator("streams")
    @classmethod
    def _complete_streams(cls, value: dict[str, StreamSettings]) -> dict[str, StreamSettings]:
        if not value:
            raise ValueError("no stream is configured; add a table [streams.NAME] with the key `table`")
        named = {
            name: stream.model_copy(update={"commit_user": stream.commit_user or f"sluicegate-{name}"})
            for name, stream in value.items()
        }
        owners: dict[tuple[str, str], str] = {}
        for name, stream in named.items():
            for place in _places(stream):
                if (other := owners.setdefault((place, stream.commit_user), name)) != name:
                    raise ValueError(
                        f"{other} and {name} commit to one table as one commit_user, so neither could tell "
                        "its own commits; give each a commit_user of its own"
                    )
        return named

    @model_validator(mode="after")
    def _check_replay_window(self) -> Self:
        for name, stream in self.streams.items():
            if stream.janitor.grace >= self.replay_window:
                raise ValueError(
                    f"replay_window must be longer than the janitor's grace of stream {name}: the janitor "
                    "finds orphaned files in the log"
                )
        return self

    def secrets(self) -> frozenset[str]:
        """Return the values that must not appear in logs or messages.

        Of the adapters' options, only those with the name of a secret are included.
        """
        found = [self.kafka.security.password, self.kafka.security.key_password]
        found += self.kafka.signing.secrets()
        if self.redis is not None:
            found += [self.redis.url, *self.redis.secrets()]
        for stream in self.streams.values():
            found += [
                value
                for name, value in stream.options.items()
                # Hiding every `id` or `true` would make logs unreadable.
                if _SOUNDS_SECRET.search(name) and len(value) >= _SHORTEST_SECRET
            ]
        plain = {secret.get_secret_value() for secret in found if secret}
        return frozenset(plain | {unquote(secret) for secret in plain})

    @classmethod
    def settings_customise_sources(  # type: ignore[override]
        cls, settings_cls: type[BaseSettings], *, init_settings: PydanticBaseSettingsSource, **_: object
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Use only the given values: `load` adds its layers itself, with an explicit environment."""
        return (init_settings,)


def load(path: Path | None, env: Mapping[str, str]) -> Settings:
    """Read the settings from a TOML file, if one is named, and the environment, which overrides it.

    Raises SettingsError with every problem.
    """
    return validate(read_file(path), env)


def validate(file: Mapping[str, Any], env: Mapping[str, str]) -> Settings:
    """Return the settings with the values of a file and the environment, which overrides it.

    Raises SettingsError with every problem.
    """
    environment = EnvironmentSource(Settings, env, file)

    class _Loaded(Settings):
        @classmethod
        def settings_customise_sources(  # type: ignore[override]
            cls, settings_cls: type[BaseSettings], *, init_settings: PydanticBaseSettingsSource, **_: object
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return environment, init_settings

    try:
        loaded = _Loaded(**{"kafka": {}, "streams": {}, **file})
    except ValidationError as error:
        raise SettingsError([*environment.problems, *explain(error, Settings, environment)]) from None
    if environment.problems:
        raise SettingsError(environment.problems)
    # Return the base class: two settings with the same values must be equal.
    return Settings.model_construct(loaded.model_fields_set, **dict(loaded))


def read_file(path: Path | None) -> dict[str, Any]:
    """Return the values of a TOML file, none without a file. Raises SettingsError."""
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError([f"{path}: cannot be read: {error.strerror or error}"]) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError([f"{path}: is not valid TOML: {error}"]) from error
