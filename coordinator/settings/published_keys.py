"""Settings of the signatures of one process, as it publishes them: with fingerprints in place of keys."""

import hashlib
import hmac
import os
import socket
from collections.abc import Iterable
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from sluicegate.coordinator.settings.kafka import KafkaSettings
from sluicegate.coordinator.settings.signing import millis
from sluicegate.events.signing import Mode

SIGNING_KEYS_HEADER: Final = "sluicegate-signing-keys"
"""Settings of the signatures of the coordinator that wrote a state record; absent: off."""
_DOMAIN: Final = b"sluicegate fingerprint of a key 1"
_DIGITS: Final = 16


class MemberKeys(BaseModel):
    """Settings of the signatures of one member, with fingerprints in place of keys."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)

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
