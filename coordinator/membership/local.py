"""Who of this machine sits in the consumer group: files that are locked as long as their process lives.

A member that was killed keeps its partitions until its session expires, unless somebody says that it is gone.
The kernel releases a lock when its process has ended, and only then: a frozen process keeps it. So whoever
gets the lock of a seat knows that its member is dead, and may take it out of the group (see `dismissal`).
"""

import fcntl
import hashlib
import json
import os
import stat
import tempfile
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import structlog

from sluicegate.coordinator.settings.kafka import KafkaSettings

log = structlog.get_logger(__name__)

_SUFFIX: Final = ".seat"


@dataclass(frozen=True, slots=True)
class _Held:
    """A file whose lock is ours."""

    path: Path
    descriptor: int
    client_id: str


class Seat:
    """The seat of one session of this process, and those of the dead.

    Without a folder that can be used there is none: then a dead member is waited for, as everywhere.
    """

    def __init__(self, kafka: KafkaSettings) -> None:
        self.client_id = f"{kafka.client_id}-{uuid.uuid4().hex[:12]}"
        """By this the group's members are told apart; no other session has it."""
        self._key = hashlib.sha256(f"{kafka.bootstrap_servers} {kafka.group_id}".encode()).hexdigest()[:16]
        self._folder = Path(kafka.seats_folder or default_folder())
        self._own: int | None = None
        self._dead: list[_Held] = []

    @property
    def dead(self) -> frozenset[str]:
        """The client ids of members whose processes have ended."""
        return frozenset(held.client_id for held in self._dead)

    def __enter__(self) -> Self:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._check_folder()
            self._find_dead()
            self._own = self._sit_down()
        except OSError as error:
            log.info("killed predecessors will be waited for", folder=str(self._folder), error=str(error))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The own file stays: should the group not have heard of our end, the next session tells it.
        for held in self._dead:
            os.close(held.descriptor)
        self._dead.clear()
        if self._own is not None:
            os.close(self._own)
            self._own = None

    def forget_dead(self) -> None:
        """Remove the seats of the dead, once the group does not know them any more."""
        for held in self._dead:
            with suppress(OSError):
                held.path.unlink()
            os.close(held.descriptor)
        self._dead.clear()

    def _check_folder(self) -> None:
        found = self._folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise PermissionError(f"{self._folder} is not a folder of this user")

    def _find_dead(self) -> None:
        for path in sorted(self._folder.glob(f"{self._key}-*{_SUFFIX}")):
            with suppress(OSError):
                held = _lock(path)
                if held is not None:
                    self._dead.append(held)

    def _sit_down(self) -> int:
        """Make the own file: locked and complete before it has the name by which others find it."""
        draft = self._folder / f".{self.client_id}.tmp"
        descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(descriptor, json.dumps({"client_id": self.client_id, "pid": os.getpid()}).encode())
            draft.rename(self._folder / f"{self._key}-{self.client_id[-12:]}{_SUFFIX}")
        except OSError:
            os.close(descriptor)
            with suppress(OSError):
                draft.unlink()
            raise
        return descriptor


def default_folder() -> Path:
    """Where seats are noted unless the settings say otherwise: survives the process, not the machine."""
    return Path(tempfile.gettempdir()) / f"sluicegate-{os.geteuid()}"


def _lock(path: Path) -> _Held | None:
    """Lock a seat and read who sat there; None if its process lives."""
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        client_id = str(json.loads(os.read(descriptor, 4096))["client_id"])
    except BlockingIOError:
        os.close(descriptor)
        return None
    except (ValueError, KeyError, TypeError):
        # Cut off by a full disk; it names nobody.
        client_id = ""
    except BaseException:
        os.close(descriptor)
        raise
    return _Held(path, descriptor, client_id)
