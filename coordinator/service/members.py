"""Members of the consumer group on this host, and the eviction of those whose process is dead.

A killed member keeps its partitions until its session times out, unless it leaves the group. Each member
holds a lock on a file of its own. The kernel releases the lock when its process ends, and only then: a
frozen member keeps it."""

import asyncio
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
from typing import Any, Final, NamedTuple, Self

import structlog
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import GroupIdNotFound, KafkaError, UnknownMemberIdError, for_code
from aiokafka.protocol.admin import DescribeGroupsRequest
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.group import LeaveGroupRequest

from sluicegate.coordinator.observe.metrics import Metrics
from sluicegate.coordinator.service.keys import Differences, differences, read_keys
from sluicegate.coordinator.settings.model import KafkaSettings
from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import reach
from sluicegate.kafka.clients import spread

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


# Evicts members of dead local processes from the consumer group, so that no session timeout is needed.
#
# Every member of the host does that: those that run, and those that start again.

_POLL: Final = 0.05
WATCH: Final = 0.5
"""Seconds between two searches of this host for dead members."""


class _Member(NamedTuple):
    member_id: str
    client_id: str


async def watch_members(kafka: KafkaSettings, membership: LocalMembership) -> None:
    """Evict each member of this host that dies, without end, so that its partitions move at once.

    A failed eviction is tried again after a session: until then the session timeout does the same.
    """
    while True:
        membership.find_dead()
        evicted = not membership.dead or await evict_dead_members(kafka, membership)
        await asyncio.sleep(WATCH if evicted else kafka.session_timeout)


async def evict_dead_members(kafka: KafkaSettings, membership: LocalMembership) -> bool:
    """Evict the dead members of this host from the group. Return False if that failed.

    Eviction starts only after this process is in the group. Otherwise the group would be empty in between,
    and the broker delays the first rebalance of an empty group (`group.initial.rebalance.delay.ms`). If it
    fails, the session timeout does the same later.
    """
    try:
        async with asyncio.timeout(kafka.session_timeout + kafka.request_timeout):
            if await _evict(kafka, membership):
                membership.forget_dead()
    except (KafkaError, TimeoutError, OSError) as error:
        log.warning(
            "the group was not searched for killed members; the session of each ends by itself",
            error=repr(error),
        )
        return False
    return True


async def _evict(kafka: KafkaSettings, membership: LocalMembership) -> bool:
    """Return True once the group has none of the dead members.

    The loop has no limit of its own; the caller's timeout ends it.
    """
    client = AIOKafkaClient(**kafka.client_options())
    try:
        await client.bootstrap()
        while True:
            try:
                if await _evict_once(client, kafka.group_id, membership):
                    return True
            except KafkaError as error:
                # A new cluster has no coordinator of the group yet, and a restarted one looks for it.
                if not error.retriable:
                    raise
            await asyncio.sleep(_POLL)
    finally:
        await client.close()


async def _evict_once(client: AIOKafkaClient, group: str, membership: LocalMembership) -> bool:
    """Evict the dead members that the group has; True if this process is in it, and none of them is."""
    node = await _coordinator(client, group)
    members = await _members(client, node, group)
    if not any(member.client_id == membership.client_id for member in members):
        return False
    dead = [member for member in members if member.client_id in membership.dead]
    if not dead:
        return True
    await reach(Failpoint.EVICT_BEFORE)
    for member in dead:
        await _leave(client, node, group, member)
    await reach(Failpoint.EVICT_AFTER)
    return False


async def _coordinator(client: AIOKafkaClient, group: str) -> int:
    answer = await client.send(client.get_random_node(), FindCoordinatorRequest(group, 0))
    _check(answer.error_code)
    node: int = answer.coordinator_id
    return node


async def _members(client: AIOKafkaClient, node: int, group: str) -> list[_Member]:
    answer: Any = await client.send(node, DescribeGroupsRequest([group]))
    found: list[_Member] = []
    for error_code, _, _, _, _, members, *_ in answer.groups:
        # A new group may not exist yet: it has no members.
        if for_code(error_code) is not GroupIdNotFound:
            _check(error_code)
        found += [_Member(member_id, client_id) for member_id, client_id, *_ in members]
    return found


async def _leave(client: AIOKafkaClient, node: int, group: str, member: _Member) -> None:
    answer = await client.send(node, LeaveGroupRequest(group, member.member_id))
    # The member may have left or timed out in the meantime.
    if for_code(answer.error_code) is not UnknownMemberIdError:
        _check(answer.error_code)
    log.info("took a killed member out of the group", member=member.member_id)


def _check(error_code: int) -> None:
    if error_code:
        raise for_code(error_code)()


AGAIN: Final = 1.0
"""Seconds between two looks at a group that changes, or at brokers that do not answer."""


class KeyWatch:
    """Differences between the keys of the members. A member has the same keys for its whole life."""

    def __init__(self, kafka: KafkaSettings, metrics: Metrics) -> None:
        self.found = Differences()
        self._kafka, self._metrics = kafka, metrics
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Note that members have come or gone."""
        self._changed.set()

    async def run(self) -> None:
        """Compare after each change, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._compare()

    async def _compare(self) -> None:
        told = None
        while told is None:
            try:
                told = await read_keys(self._kafka.client_options(), self._kafka.group_id)
            except (KafkaError, TimeoutError, OSError) as error:
                log.info("the keys of the members are not compared yet", error=repr(error))
            if told is None:
                await asyncio.sleep(spread(AGAIN))
        found, before = differences(told.known), self.found
        self.found = found
        self._metrics.key_differences.set(len(found.refused))
        for each in found.refused:
            if each not in before.refused:
                log.error("members take records of others for forged", reason=each)
        for each in found.coming:
            if each not in before.coming:
                log.warning("members have different signing keys", reason=each)
        if before != found and not found.refused and not found.coming:
            log.info("the members agree on signing keys again")
