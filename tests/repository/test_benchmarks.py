"""Benchmarks: each has a table, and times are counted from the right message (tools/bench)."""

import io
import json
import re
from collections import Counter

import fastavro
import pytest

from sluicegate.cli.local.jars import KAFKA_VERSION
from tools.bench.catalogue import BENCHMARKS
from tools.bench.jvm import CONNECT
from tools.bench.kafka_connect import ROWS, Commit, delays, messages, origins_of, read_event
from tools.bench.tables import DOCS, MAKERS, filled


@pytest.mark.parametrize("name", ["kafka_connect", "last_event", "last_event_hdfs"])
def test_a_benchmark_on_the_page_has_a_table(name: str) -> None:
    assert name in {each.name for each in BENCHMARKS}
    assert name in MAKERS
    page = DOCS.read_text(encoding="utf-8")
    assert f"<!-- table {name} -->" in page
    assert filled(page).count("<!-- end -->") == page.count("<!-- end -->")


def test_the_worker_is_no_newer_than_the_broker() -> None:
    (worker,) = re.findall(r"/connect-runtime-([\d.]+)\.jar", CONNECT.listed.read_text(encoding="utf-8"))
    assert [int(each) for each in worker.split(".")] <= [int(each) for each in KAFKA_VERSION.split(".")]


def test_a_delay_counts_from_the_last_completion_of_its_commit() -> None:
    commits = [Commit("a", 4, 1_020_000_000), Commit("b", 4, 2_070_500_000)]
    completed = {"b": [2_050, 2_010], "a": [1_000, 1_015]}
    assert delays(commits, completed, tasks=2, files=4) == [5.0, 20.5]


def test_a_round_that_came_apart_does_not_count() -> None:
    commits = [Commit("a", 3, 1_020_000_000), Commit("b", 1, 1_070_000_000)]
    assert delays(commits, {}, tasks=2, files=4) == []


@pytest.mark.parametrize("completed", [[1_000], [1_000, 1_021], [1_000, 1_001, 1_002]])
def test_a_commit_before_all_tasks_are_complete_stops_the_run(completed: list[int]) -> None:
    commits = [Commit("a", 4, 1_020_000_000)]
    with pytest.raises(RuntimeError, match="before all of 2 tasks"):
        delays(commits, {"a": completed}, tasks=2, files=4)


def test_an_event_of_the_control_topic_is_read_with_its_own_schema() -> None:
    schema = {"type": "record", "name": "event", "fields": [{"name": "type", "type": "int"}]}
    data, text = io.BytesIO(), json.dumps(schema).encode()
    fastavro.schemaless_writer(data, schema, {"type": 2})
    assert read_event(b"\xc2\x01" + len(text).to_bytes(2) + text + data.getvalue()) == {"type": 2}


def test_a_task_gets_the_rows_of_as_many_files_as_an_event_of_ours() -> None:
    made = messages(origins_of(25), each=10)
    assert Counter(partition for partition, _ in made) == {0: 10 * ROWS, 1: 10 * ROWS, 2: 5 * ROWS}
    origins = {(partition, json.loads(row)["origin"]) for partition, row in made}
    assert len(origins) == 25
