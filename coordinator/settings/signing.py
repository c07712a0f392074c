"""Settings of the signatures on decisions and orders."""

import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Final, Literal, Self

from pydantic import AwareDatetime, Field, PrivateAttr, SecretStr, model_validator

from sluicegate.coordinator.settings.sources import Section
from sluicegate.kafka.settings import UnusableFile, read_secret

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
