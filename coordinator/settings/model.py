"""Settings: a TOML file, overridden by the environment (`SLUICEGATE_SECTION__KEY`).

Unknown keys are errors. All problems are reported together, at the start.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import unquote, urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from sluicegate.coordinator.settings.http import HttpSettings
from sluicegate.coordinator.settings.kafka import KafkaSecurity, KafkaSettings
from sluicegate.coordinator.settings.listeners import ListenerSettings
from sluicegate.coordinator.settings.redis import RedisSettings
from sluicegate.coordinator.settings.sources import EnvironmentSource, Section, SettingsError, Text, explain
from sluicegate.coordinator.settings.units import Bytes, Seconds, SecondsOrZero
from sluicegate.events.models import Name, StreamPolicy
from sluicegate.events.orders import printable
from sluicegate.failpoints.points import parse as parse_failpoints
from sluicegate.lakes.registry import DEFAULT_FORMAT

__all__ = [
    "HttpSettings",
    "JanitorSettings",
    "KafkaSecurity",
    "KafkaSettings",
    "LogSettings",
    "MemorySettings",
    "RedisSettings",
    "Settings",
    "SettingsError",
    "StreamSettings",
    "load",
    "validate",
]

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
    """Deletion of files that the log names and that no commit will include."""

    enabled: bool = False
    """True if the coordinator deletes them itself; `sluicegate orphans` does it on request."""
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


def _check_distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    if len({*names}) < len(names):
        raise ValueError("must name each region once")
    return names


class StreamSettings(Section):
    """One stream: its table, and the rules of its commits."""

    format: Name = DEFAULT_FORMAT
    """Name of the adapter of the table format."""
    table: Text
    """URI of the table, or an absolute path."""
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
    """Time that a due commit waits for regions that are expected to be part of it."""
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
    options: Annotated[dict[str, SecretStr], BeforeValidator(_flatten)] = Field(default_factory=dict)
    """Options of the table format's adapter. All are kept out of logs, because they may be credentials."""

    @field_validator("table", "allowed_locations")
    @classmethod
    def _check_absolute(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        for location in (value,) if isinstance(value, str) else value:
            if not urlsplit(location).scheme and not os.path.isabs(location):
                raise ValueError("must be a URI or an absolute path: writers run elsewhere")
        return value

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
    """Time between two checks of an idle stream's table for a replacement or a rollback.

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
            other = owners.setdefault((stream.table.rstrip("/"), stream.commit_user), name)
            if other != name:
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
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
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
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
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
