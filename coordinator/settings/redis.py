"""Settings of the connection to Redis."""

from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

from pydantic import FilePath, SecretStr, field_validator, model_validator

from sluicegate.coordinator.settings.sources import Section, Text
from sluicegate.coordinator.settings.units import Seconds
from sluicegate.kafka.settings import check_secrets

_SCHEMES: Final = ("redis", "rediss", "unix")


class RedisSettings(Section):
    """Redis for the views of status and dashboards; no decision depends on it."""

    url: SecretStr
    """`redis://[user:password@]host:port/db`, `rediss://` (TLS) or `unix://`."""
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
        tls = [name for name in ("ca_file", "certificate_file", "key_file") if getattr(self, name)]
        if tls and parts.scheme != "rediss":
            raise ValueError(f"`{tls[0]}` is set, but `url` is not encrypted; begin it with rediss://")
        if self.key_file is not None and self.certificate_file is None:
            raise ValueError("`key_file` is set, but `certificate_file` is not; set both or none")
        return self

    def client_options(self) -> dict[str, Any]:
        """Return the keyword arguments of `Redis.from_url` except the address: for the client only."""
        options: dict[str, Any] = {}
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
        if parts.scheme == "unix":
            return f"unix://{parts.path}"
        return f"{parts.scheme}://{parts.hostname}:{parts.port or 6379}{parts.path}"
