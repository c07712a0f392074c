"""Drivers without Spark that leave their files to an uploader, which is killed, and whose spool is lost."""

import asyncio
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import ClassVar, Final
from uuid import uuid4

import psutil

from sluicegate.writer_hooks.upload.spool import Spool
from tests.faults.points import SENDING, SPOOLED
from tests.faults.pythons import DRIVER_FAULTS, STEP, Campaign, PlainJob
from tests.faults.scenes import Maker
from tests.faults.sparks import Tickets
from tests.integration.waiting import until

_TIMEOUT: Final = "20"
"""Seconds after which a driver reports files as lost."""


class SpoolCampaign(Campaign):
    """A driver whose writers leave their files in one spool."""

    WRITING: ClassVar = SPOOLED

    def __init__(self, job: PlainJob, random: Random, spool: Path) -> None:
        super().__init__(job, job.where.start(), random)
        self._folder = spool

    async def _working_uploader(self) -> psutil.Process:
        """Wait for an uploader, while the driver has work."""

        def found() -> list[psutil.Process]:
            self._go_on()
            return [*uploaders(self._folder)]

        return (await until(found, log=self.job.log_file, what="an uploader"))[0]

    def _go_on(self) -> None:
        if self.program is None or self.program.is_over:
            self.start()
        self.feed_on()

    async def uploader_killed(self) -> None:
        """At any moment of its work."""
        uploader = await self._working_uploader()
        self.job.ask_for(2 * STEP)
        await asyncio.sleep(self.random.uniform(0.0, 1.0))  # time: any moment of its work
        with suppress(psutil.NoSuchProcess):
            uploader.kill()

    async def uploader_killed_at_a_place(self) -> None:
        await self.taken(self.job.tickets.kill[self.random.choice(SENDING)])

    async def spool_lost(self) -> None:
        """The disk of a machine, with files that nobody has uploaded."""
        while not await self._lose_spool():
            pass

    async def _lose_spool(self) -> bool:
        """Delete the spool; False if all that it held had been uploaded after all."""
        waiting: list[object] = []
        while not waiting:
            uploader = await self._working_uploader()
            with suppress(psutil.NoSuchProcess):
                uploader.suspend()

            def entries_or_end(uploader: psutil.Process = uploader) -> bool:
                self._go_on()
                with suppress(FileNotFoundError):
                    waiting[:] = Spool(str(self._folder)).names()
                return bool(waiting) or not uploader.is_running()

            await until(entries_or_end, log=self.job.log_file, what="files that wait")
            with suppress(psutil.NoSuchProcess):
                uploader.kill()
        before = self.job.log_file.stat().st_size
        # At once, since a writer may be making files in it.
        gone = self._folder.with_name(f"lost-{uuid4().hex}")
        self._folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

        def is_told() -> bool:
            """The loss is reported, or a writer has failed in its spool."""
            over = self.program is None or self.program.is_over
            return over or "is stalled" in self._told_since(before)

        def is_settled() -> bool:
            return is_told() or self.job.committed >= self.job.target

        await until(is_settled, log=self.job.log_file, what="the report of lost files")
        lost_any = is_told()
        self.start()
        return lost_any

    def _told_since(self, size: int) -> str:
        return self.job.log_file.read_bytes()[size:].decode(errors="replace")


def uploaders(spool: Path) -> list[psutil.Process]:
    """Return the uploaders of a spool."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.cmdline()[-2:] == ["sluicegate.writer_hooks.upload.process", str(spool)]:
                found.append(process)
    return found


Faults = Mapping[str, Callable[[SpoolCampaign], Awaitable[None]]]
OF_SPOOLS: Final[Faults] = {
    "uploader killed at a place": SpoolCampaign.uploader_killed_at_a_place,
    "uploader killed at random": SpoolCampaign.uploader_killed,
    "writer killed": SpoolCampaign.writer_killed,
    "spool lost": SpoolCampaign.spool_lost,
}
SPOOL_FAULTS: Final[Faults] = {**DRIVER_FAULTS, **OF_SPOOLS}


async def spools_hurt(
    make: Maker, rounds: int, random: Random, faults: Faults = SPOOL_FAULTS
) -> Counter[str]:
    """Let each kind of fault happen so often, in a random order; return how often which. Raises Inexact."""
    where = await make()
    spool = where.folder / "spool"
    options = {"upload": "async", "upload.spool": str(spool), "upload.timeout": _TIMEOUT}
    campaign = SpoolCampaign(PlainJob(where, Tickets(where), options), random, spool)
    try:
        return await campaign.run(faults, rounds)
    finally:
        for each in uploaders(spool):
            each.kill()
