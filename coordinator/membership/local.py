"""Members of the consumer group on this host: one file for each, locked while its process lives.

A killed member keeps its partitions until its session times out, unless it leaves the group. The kernel
releases a lock when its process ends, and only then: a frozen process keeps it. So the lock of a file proves
that its member is dead and may be evicted (see `eviction`).
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

_SUFFIX: Final = ".membership"


@dataclass(frozen=True, slots=True)
class _Held:
    """A file whose lock this process holds."""

    path: Path
    descriptor: int
    client_id: str


class LocalMembership:
    """Membership of one session of this process, and the dead members of this host.

    Without a usable folder there is no file: the session of a dead member then has to time out.
    """

    def __init__(self, kafka: KafkaSettings) -> None:
        self.client_id = f"{kafka.client_id}-{uuid.uuid4().hex[:12]}"
        """Client id in the group; unique for each session of a process."""
        self._key = hashlib.sha256(f"{kafka.bootstrap_servers} {kafka.group_id}".encode()).hexdigest()[:16]
        self._folder = Path(kafka.members_folder or default_folder())
        self._own: int | None = None
        self._dead: list[_Held] = []

    @property
    def dead(self) -> frozenset[str]:
        """Client ids of members whose processes have ended."""
        return frozenset(held.client_id for held in self._dead)

    def __enter__(self) -> Self:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._check_folder()
            self._own = self._create_own()
            self.find_dead()
        except OSError as error:
            log.info("killed members will be waited for", folder=str(self._folder), error=str(error))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The own file stays: if the group still has this member, the next session evicts it.
        for held in self._dead:
            os.close(held.descriptor)
        self._dead.clear()
        if self._own is not None:
            os.close(self._own)
            self._own = None

    def forget_dead(self) -> None:
        """Delete the files of the dead members, after the group has evicted them."""
        for held in self._dead:
            with suppress(OSError):
                held.path.unlink()
            os.close(held.descriptor)
        self._dead.clear()

    def _check_folder(self) -> None:
        # In a shared temporary directory, another user may have created the folder.
        found = self._folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise PermissionError(f"{self._folder} is not a folder of this user")

    def find_dead(self) -> None:
        """Add the members of this host that have died since the last search; reads a folder.

        Only one process finds a dead member: it holds the lock of its file.
        """
        if self._own is None:
            # The folder is not usable.
            return
        for path in sorted(self._folder.glob(f"{self._key}-*{_SUFFIX}")):
            with suppress(OSError):
                held = _lock(path)
                if held is not None:
                    self._dead.append(held)

    def _create_own(self) -> int:
        """Create the own file: locked and complete before it gets the name that others search for."""
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
    """Return the default folder: it survives the process, but not the host."""
    return Path(tempfile.gettempdir()) / f"sluicegate-{os.geteuid()}"


def _lock(path: Path) -> _Held | None:
    """Lock a member file and read its client id; None if its process lives."""
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        client_id = str(json.loads(os.read(descriptor, 4096))["client_id"])
    except BlockingIOError:
        os.close(descriptor)
        return None
    except (ValueError, KeyError, TypeError):
        # Truncated by a full disk; it names no member.
        client_id = ""
    except BaseException:
        os.close(descriptor)
        raise
    return _Held(path, descriptor, client_id)
