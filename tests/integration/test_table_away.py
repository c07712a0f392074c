"""A table whose folder is moved away under a running coordinator, as a share that is unmounted."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from sluicegate.coordinator.stream.prechecks import Passed, Terms
from sluicegate.coordinator.stream.table import StreamTable
from sluicegate.kafka.bodies import WrittenEvent
from tests.faults import tables
from tests.integration.conftest import place_of
from tests.integration.coordinator import running
from tests.integration.letters import conditions
from tests.integration.orders import invoke, sluicegate
from tests.integration.test_replaced_tables import ids_of
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka

STREAM = ("--stream", "flights")
LAKES = [
    pytest.param("iceberg", marks=pytest.mark.seam),
    *(pytest.param(name, marks=pytest.mark.matrix) for name in tables.FORMATS if name != "iceberg"),
]


def is_there(folder: Path) -> bool:
    return folder.exists()


def data_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.parquet"))


@pytest.mark.parametrize("lake", LAKES)
async def test_what_was_checked_is_committed_once_when_the_folder_is_back(
    kafka_bootstrap: str,
    unique: str,
    tmp_path: Path,
    impatient: None,
    monkeypatch: pytest.MonkeyPatch,
    lake: str,
) -> None:
    place = await place_of(lake, kafka_bootstrap, unique, tmp_path)
    folder, away = Path(place.table), tmp_path / "away"
    checked = list[int]()
    check_early = StreamTable.check_early

    async def noted(
        self: StreamTable, events: Mapping[int, WrittenEvent], terms: Terms
    ) -> Mapping[int, Passed]:
        passed = await check_early(self, events, terms)
        checked.extend(passed)
        return passed

    monkeypatch.setattr(StreamTable, "check_early", noted)
    async with place.job() as job, running(place.settings()) as service:
        await job.register()
        await job.run_batch([1])
        await until(lambda: ids_of(place), lambda found: found == [1])
        await sluicegate(place, "stream", "pause", *STREAM)
        await until(lambda: conditions(service), lambda found: [each["kind"] for each in found] == ["pause"])
        checked.clear()
        await job.run_batch([2])
        await until(lambda: checked)
        os.rename(folder, away)
        await sluicegate(place, "stream", "resume", *STREAM)
        told = await until(
            lambda: [each for each in conditions(service) if each["kind"] in ("retry", "stall")]
        )
        assert "ount" in str(told[0]), told
        checks = await invoke(place, "check")
        assert checks.exit_code == 1
        assert "ount" in next(each for each in checks.output.splitlines() if each.startswith("PROBLEM"))
        verified = await invoke(place, "replay", "verify", *STREAM)
        assert verified.exit_code != 0
        assert not is_there(folder)
        os.rename(away, folder)
        await until(lambda: ids_of(place), lambda found: found == [1, 2])
        await job.run_batch([3])
        await until(lambda: ids_of(place), lambda found: found == [1, 2, 3])
        assert "newest snapshot can be read" in await sluicegate(place, "check")
        file = data_files(folder)[0]
        os.rename(file, tmp_path / "kept")
        for command in (("check",), ("replay", "verify", *STREAM)):
            found = await invoke(place, *command)
            assert found.exit_code == 1, found.output
            assert f"{file.name} of" in found.output
            assert "restore the file" in found.output
