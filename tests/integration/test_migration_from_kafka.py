"""The pages about programs that read a Kafka topic: their tables, and a reader that continues."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from deltalake import CommitProperties, Transaction, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from sluicegate.kafka.clients import started
from tests.faults.tables import kind_of
from tests.integration.conftest import Place, place_of
from tests.integration.coordinator import running
from tests.integration.test_python_driver import rows
from tests.integration.test_python_examples import EXAMPLES, Program
from tests.integration.waiting import tail, until

pytestmark = pytest.mark.kafka

PAGES = EXAMPLES.parent / "docs" / "migration"
COUNT = 9
"""Records of the source: the offset is half of the id, rounded down, in the partition of its parity."""
READ = 3
"""Records that the program before has brought into the table: the offsets 0 and 1, and the offset 0."""
NEXT = {"0": 2, "1": 1}


def functions_of(page: str) -> dict[str, Any]:
    """Return the functions of a page."""
    found: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", (PAGES / page).read_text(encoding="utf-8"), re.DOTALL):
        exec(block, found)  # noqa: S102
    return found


async def make_source(bootstrap: str, topic: str) -> None:
    async with started(AIOKafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        await admin.create_topics([NewTopic(topic, 2, 1)])
    async with started(AIOKafkaProducer(bootstrap_servers=bootstrap)) as producer:
        for number in range(COUNT):
            record = json.dumps({"id": number, "origin": "JFK"}).encode()
            await producer.send_and_wait(topic, record, partition=number % 2)


async def commit_offsets(bootstrap: str, group: str, topic: str, offsets: Mapping[str, int]) -> None:
    reader = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
    async with started(reader) as consumer:
        sources = {TopicPartition(topic, int(each)): offset for each, offset in offsets.items()}
        consumer.assign(list(sources))
        await consumer.commit(sources)


async def read_on(place: Place, topic: str, log: Path, starts: Mapping[str, int]) -> None:
    """Let the example read the topic to its end, twice: the starts count once."""
    command = [str(EXAMPLES / "kafka_consumers.py"), place.bootstrap, topic, place.table, "--once"]
    command += ["--format", place.lake, "--topic-prefix", place.prefix, "--starts", json.dumps(starts)]
    command += [f"--option=table.{name}={value}" for name, value in place.lake_options.items()]
    async with running(place.settings("orders")):
        for _ in range(2):
            program = Program(log, *command)
            await until(lambda: program.process.poll() is not None, log=log)  # noqa: B023
            program.close()
            assert program.process.returncode == 0, tail(log)
    found = kind_of(Path(place.table)).rows(Path(place.table))
    assert sorted(row["id"] for row in found) == list(range(COUNT))


async def test_a_table_of_kafka_delta_ingest_is_continued(
    kafka_bootstrap: str, unique: str, tmp_path: Path
) -> None:
    place, topic = await place_of("delta", kafka_bootstrap, unique, tmp_path), f"{unique}-orders"
    await make_source(kafka_bootstrap, topic)
    newest = [Transaction(f"ingest-{each}", offset - 1) for each, offset in NEXT.items()]
    commit = CommitProperties(app_transactions=newest)
    before = rows(*range(READ))
    times = before["at"].cast(pa.timestamp("us", tz="UTC"))
    before = before.set_column(before.schema.get_field_index("at"), "at", times)
    write_deltalake(place.table, before, mode="append", commit_properties=commit)
    starts = functions_of("kafka-delta-ingest.md")["next_offsets"](place.table, "ingest", 3)
    assert starts == NEXT
    await read_on(place, topic, tmp_path / "log", starts)


async def test_a_table_of_iceberg_kafka_connect_is_continued(
    kafka_bootstrap: str, unique: str, tmp_path: Path
) -> None:
    place, topic = await place_of("iceberg", kafka_bootstrap, unique, tmp_path), f"{unique}-orders"
    page = functions_of("iceberg-kafka-connect.md")
    await make_source(kafka_bootstrap, topic)
    group, control = f"connect-{unique}", f"{unique}-control"
    async with started(AIOKafkaAdminClient(bootstrap_servers=kafka_bootstrap)) as admin:
        await admin.create_topics([NewTopic(control, 1, 1)])
    async with started(AIOKafkaProducer(bootstrap_servers=kafka_bootstrap)) as producer:
        for kind in (b"started", b"written", b"complete"):
            await producer.send_and_wait(control, kind)
    await commit_offsets(kafka_bootstrap, group, topic, NEXT)
    await commit_offsets(kafka_bootstrap, f"{group}-coord", control, {"0": 1})
    wanted = await page["ends"](kafka_bootstrap, control)
    assert not page["has_reached"](await page["offsets"](kafka_bootstrap, f"{group}-coord", control), wanted)

    catalog = SqlCatalog("default", uri=place.lake_options["uri"], warehouse=f"file://{place.root}")
    table = catalog.load_table("db.flights")
    summary = {f"kafka.connect.offsets.{control}.{group}": json.dumps({"0": 3})}
    table.append(rows(*range(READ)).cast(table.schema().as_arrow()), snapshot_properties=summary)
    catalog.close()
    await commit_offsets(kafka_bootstrap, f"{group}-coord", control, {"0": 3})
    assert page["has_reached"](await page["offsets"](kafka_bootstrap, f"{group}-coord", control), wanted)
    starts = await page["offsets"](kafka_bootstrap, group, topic)
    assert starts == NEXT
    await read_on(place, topic, tmp_path / "log", starts)
