"""Small manifests are put together, and nothing else changes by it."""

import json
import os
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pypaimon.manifest.schema.manifest_file_meta import MANIFEST_FILE_META_SCHEMA

from sluicegate.lakes.paimon.manifests import MIN_COUNT, plan
from tests.contracts.lakes.harness import Stream
from tests.contracts.lakes.paimon_lake import PaimonLake
from tests.lakes.outcomes import is_refused
from tests.lakes.paimon import reading

TARGET = 8 << 20


def meta(name: str, size: int = 2_000, deleted: int = 0) -> dict[str, Any]:
    return {
        "_VERSION": 2,
        "_FILE_NAME": name,
        "_FILE_SIZE": size,
        "_NUM_ADDED_FILES": 1,
        "_NUM_DELETED_FILES": deleted,
        "_PARTITION_STATS": {"_MIN_VALUES": b"x", "_MAX_VALUES": b"x", "_NULL_COUNTS": []},
    }


def metas(count: int, size: int = 2_000) -> list[dict[str, Any]]:
    return [meta(f"m{number}", size) for number in range(count)]


def test_few_manifests_stay_as_they_are() -> None:
    assert plan(metas(MIN_COUNT - 1), TARGET, set()) == []


def test_many_small_ones_become_one() -> None:
    assert plan(metas(MIN_COUNT), TARGET, set()) == [(0, MIN_COUNT)]


def test_a_deletion_parts_the_runs() -> None:
    """What comes before a deletion in the list must stay before it."""
    listed = [*metas(MIN_COUNT), meta("d", deleted=1), *metas(MIN_COUNT)]
    assert plan(listed, TARGET, set()) == [(0, MIN_COUNT), (MIN_COUNT + 1, 2 * MIN_COUNT + 1)]


def test_excluded_and_full_manifests_part_the_runs() -> None:
    listed = [*metas(MIN_COUNT - 1), meta("full", TARGET), *metas(MIN_COUNT - 1)]
    assert plan(listed, TARGET, set()) == []
    assert plan(metas(MIN_COUNT), TARGET, {"m3"}) == []


def test_one_merge_never_copies_much_more_than_a_full_manifest() -> None:
    listed = metas(100, TARGET // 4)
    runs = plan(listed, TARGET, set())
    assert runs
    assert all((end - start) * (TARGET // 4) <= 2 * TARGET for start, end in runs)


@pytest.mark.slow
def test_the_list_stays_short_over_many_commits(tmp_path: Path) -> None:
    lake = PaimonLake(tmp_path)
    stream = Stream(lake)
    sizes = []
    for decision in range(1, 151):
        stream.commit(decision, [decision])
        sizes.append(len(reading.manifests(lake.root, decision)))
    assert max(sizes) <= MIN_COUNT + 1
    assert lake.ids() == list(range(1, 151))
    assert reading.rows(lake.root, 150).column("id").to_pylist() == list(range(1, 151))
    for number in (1, 29, 30, 31, 60, 100):
        assert reading.rows(lake.root, number).num_rows == number


@pytest.mark.slow
def test_deletions_by_others_still_hit(tmp_path: Path) -> None:
    """An overwrite deletes files; commits and merges after it must not bring them back."""
    lake = PaimonLake(tmp_path)
    stream = Stream(lake)
    for decision in range(1, 41):
        stream.commit(decision, [decision])
    builder = lake.table.new_batch_write_builder().overwrite({})
    write, commit = builder.new_write(), builder.new_commit()
    write.write_arrow(pa.table({"id": pa.array([5_000], pa.int64())}))
    commit.commit(write.prepare_commit())
    commit.close()
    write.close()
    assert lake.ids() == [5_000]
    for decision in range(41, 121):
        stream.commit(decision, [decision])
    assert lake.ids() == [*range(41, 121), 5_000]
    assert reading.snapshot(lake.root, 121)["totalRecordCount"] == 81


def rewrite_list(
    lake: PaimonLake, stream: Stream, which: str, schema: dict[str, Any], extra: dict[str, Any]
) -> None:
    """Write the head's list again, and its size in the snapshot, as another product would have."""
    number = lake.snapshot_ids()[-1]
    name = reading.snapshot(lake.root, number)[f"{which}ManifestList"]
    lines = [{**line, **extra} for line in reading.records(lake.root, name)]
    os.unlink(lake.root / "manifest" / name)
    with open(lake.root / "manifest" / name, "wb") as file:
        fastavro.writer(file, schema, lines, codec="zstandard")
    path = lake.root / "snapshot" / f"snapshot-{number}"
    size = (lake.root / "manifest" / name).stat().st_size
    path.write_text(json.dumps({**json.loads(path.read_text()), f"{which}ManifestListSize": size}))
    stream.recorded = lake.committer().inspect().head


def other_schema(*more: dict[str, Any]) -> dict[str, Any]:
    fields = [*MANIFEST_FILE_META_SCHEMA["fields"], *more]
    return {"type": "record", "name": "org.apache.paimon.avro.generated.record", "fields": fields}


@pytest.mark.slow
@pytest.mark.parametrize("which", ["base", "delta"])
def test_lists_of_another_schema_are_written_anew(tmp_path: Path, which: str) -> None:
    lake = PaimonLake(tmp_path)
    stream = Stream(lake)
    stream.commit(1, [1])
    stream.commit(2, [2])
    rewrite_list(
        lake, stream, which, other_schema({"name": "_NEW", "type": ["null", "long"]}), {"_NEW": None}
    )
    stream.commit(3, [3])
    assert lake.ids() == [1, 2, 3]
    assert len(reading.manifests(lake.root, 3)) == 3


def test_lists_that_say_more_than_we_know_are_not_rewritten(tmp_path: Path) -> None:
    lake = PaimonLake(tmp_path)
    stream = Stream(lake)
    stream.commit(1, [1])
    rewrite_list(lake, stream, "delta", other_schema({"name": "_NEW", "type": ["null", "long"]}), {"_NEW": 7})
    outcome = stream.publish(2, stream.head(2), [lake.event([2])])
    assert is_refused(outcome)
    assert "_NEW" in outcome.reason
