"""A stream's table: effects of the core become calls of the committer half, in a thread."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import TypeVar

from sluicegate.coordinator.core.effects import (
    Ask,
    CheckFiles,
    Failed,
    FilesChecked,
    InspectTable,
    Publish,
    Result,
    TableUnfit,
)
from sluicegate.coordinator.settings import StreamSettings
from sluicegate.events.codec import BadBody, read_files
from sluicegate.events.locations import location_problem
from sluicegate.events.models import FilesWritten
from sluicegate.lakes.port import (
    BadFiles,
    CommitRequest,
    Committer,
    LakeUnavailable,
    OutcomeUnknown,
    Refused,
    TableRefused,
)
from sluicegate.lakes.registry import adapter

T = TypeVar("T")


class StreamTable:
    """One committer, opened when the table is inspected; one call at a time."""

    def __init__(self, settings: StreamSettings, threads: Executor) -> None:
        self._settings = settings
        self._threads = threads
        self._committer: Committer | None = None
        self.broken: dict[int, str] = {}
        """Bodies that turned out to be unreadable, by offset, with the reason."""

    async def inspect(self, _: InspectTable) -> Result:
        """Open the table anew and say where it stands."""
        try:
            return await self._call(self._open_and_inspect)
        except TableRefused as error:
            return TableUnfit(str(error))
        except LakeUnavailable as error:
            return Failed(str(error))

    async def ask(self, effect: Ask) -> Result:
        """Ask for a decision."""
        committer = self._opened()
        try:
            return await self._call(
                lambda: committer.ask(effect.decision, effect.digest, effect.table, effect.recorded)
            )
        except LakeUnavailable as error:
            return Failed(str(error))

    async def check(self, effect: CheckFiles, bodies: dict[int, bytes]) -> Result:
        """Check the events' files, region by region."""
        try:
            return FilesChecked(await self._call(lambda: self._problems(effect, bodies)))
        except LakeUnavailable as error:
            return Failed(str(error))

    async def publish(self, effect: Publish, bodies: dict[int, bytes]) -> Result:
        """Publish a commit; whatever is not known for sure is an unknown outcome."""
        try:
            return await self._call(lambda: self._publish(effect, bodies))
        except (BadBody, BadFiles) as error:
            return Refused(str(error))
        except Exception as error:
            return OutcomeUnknown(f"{type(error).__name__}: {error}")

    def close(self) -> None:
        """Release the committer."""
        if self._committer is not None:
            self._committer.close()

    async def _call(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)

    def _opened(self) -> Committer:
        if self._committer is None:
            raise LakeUnavailable("the table has not been inspected yet")
        return self._committer

    def _open_and_inspect(self) -> Result:
        settings = self._settings
        committer = adapter(settings.format).open_committer(
            settings.table, settings.commit_user, settings.adapter_options()
        )
        state = committer.inspect()
        self._committer = committer
        return state

    def _problems(self, effect: CheckFiles, bodies: dict[int, bytes]) -> dict[str, str]:
        problems: dict[str, str] = {}
        for part in effect.parts:
            try:
                files = [self._read_at(offset, bodies, effect.allowed_locations) for offset in part.offsets]
                self._opened().check(files)
            except (BadBody, BadFiles, TableRefused) as error:
                problems[part.region] = f"region {part.region}: {error}"
        return problems

    def _publish(self, effect: Publish, bodies: dict[int, bytes]) -> Result:
        files = [self._read(bodies[offset], effect.allowed_locations) for offset in effect.offsets]
        return self._opened().publish(
            CommitRequest(
                decision=effect.decision,
                digest=effect.digest,
                head=effect.head,
                watermark=effect.watermark,
                files=files,
            )
        )

    def _read_at(self, offset: int, bodies: dict[int, bytes], allowed: Sequence[str]) -> FilesWritten:
        try:
            return self._read(bodies[offset], allowed)
        except BadBody as error:
            self.broken[offset] = str(error)
            raise

    def _read(self, body: bytes, allowed: Sequence[str]) -> FilesWritten:
        files = read_files(body)
        problem = location_problem(files, allowed)
        if problem is None and files.format != self._settings.format:
            problem = f"files of the format {files.format} for a table of {self._settings.format}"
        if problem is not None:
            raise BadFiles(problem)
        return files
