"""Commands that read the log and the tables, for a stream with further tables: real topics, real tables."""

import asyncio
import json
import multiprocessing
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from click.testing import CliRunner

from sluicegate.cli.main import main
from sluicegate.coordinator.replay.log import stream_records
from sluicegate.coordinator.service.janitor import _work
from sluicegate.coordinator.settings.model import load
from sluicegate.events.envelope import partition_of
from sluicegate.kafka.clients import started
from sluicegate.kafka.topics import TopicNames
from tests.integration.coordinator import running
from tests.integration.job import PARTITIONS, make_topics
from tests.integration.orders import Spoken
from tests.integration.waiting import until
from tests.replay.shop import STREAM, USER, Shop

pytestmark = [pytest.mark.kafka, pytest.mark.seam]
OF = ("--stream", STREAM)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


class Deployment:
    """The stream's log in topics of its own, and the command line on it."""

    def __init__(self, bootstrap: str, prefix: str, shop: Shop) -> None:
        self.bootstrap, self.prefix, self.shop = bootstrap, prefix, shop

    async def begin(self) -> None:
        """Make the topics, and append the log."""
        await make_topics(self.bootstrap, self.prefix)
        topic, home = TopicNames(self.prefix).events, partition_of(STREAM, PARTITIONS)
        async with started(AIOKafkaProducer(bootstrap_servers=self.bootstrap)) as producer:
            for each in self.shop.log.records:
                headers = list(each.headers)
                await producer.send_and_wait(topic, each.value, each.key, home, headers=headers)

    def config(self) -> Path:
        made, further = self.shop.root / "sluicegate.toml", self.shop.settings.tables.items()
        options = {**self.shop.settings.adapter_options()}
        tables = "\n".join(f"{name} = {json.dumps(each.identifier)}" for name, each in further)
        made.write_text(
            f'[kafka]\nbootstrap_servers = "{self.bootstrap}"\ntopic_prefix = "{self.prefix}"\n'
            f'group_id = "{self.prefix}"\n[http]\nport = 0\n[streams.{STREAM}]\nformat = "iceberg"\n'
            f'table = "{self.shop.settings.table}"\ncommit_user = "{USER}"\n'
            f"options = {{ {', '.join(f'{key} = {json.dumps(each)}' for key, each in options.items())} }}\n"
            f"[streams.{STREAM}.tables]\n{tables}\n"
        )
        return made

    async def run(self, *arguments: str, status: int = 0) -> str:
        """Run a command, and return its output."""
        environment = {"SLUICEGATE_CONFIG": str(self.config())}
        result = await asyncio.to_thread(CliRunner().invoke, main, arguments, env=environment)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        found = Spoken(result.exit_code, result.stdout, result.stderr)
        assert found.exit_code == status, found.output
        return found.stdout if status in (0, 1) else found.stderr

    async def values(self, *arguments: str, status: int = 0) -> dict[str, Any]:
        return dict(json.loads(await self.run(*arguments, "--json", status=status)))


@pytest.fixture
async def place(kafka_bootstrap: str, unique: str, tmp_path: Path, threads: ThreadPoolExecutor) -> Deployment:
    """Three commits: to all tables, to the anchor and items, and to taxes."""
    shop = Shop(tmp_path, threads)
    await shop.begin()
    await shop.commit(0, orders=[1], items=[10], taxes=[100])
    await shop.commit(1, orders=[2], items=[20])
    await shop.commit(2, taxes=[300])
    shop.write("items", [77], 2, "loser")
    made = Deployment(kafka_bootstrap, unique, shop)
    await made.begin()
    return made


@pytest.mark.matrix
async def test_what_a_further_table_lacks_is_found_and_the_advice_brings_it_back(place: Deployment) -> None:
    shop = place.shop
    assert (await place.values("replay", "verify", *OF))["different"] is False
    shop.rollback("items", 1)
    found = await place.values("replay", "verify", *OF, status=1)
    assert [each["decision"] for each in found["tables"]["items"]["findings"]] == [2]
    assert (found["counts"]["there"], found["tables"]["taxes"]["different"]) == (3, False)
    text = await place.run("replay", "verify", *OF, status=1)
    (advice,) = re.findall(r"sluicegate (replay repair [^\n]*)", text)
    assert advice == "replay repair --stream shop --table items"
    told = await place.run(*advice.split())
    assert "It now states that its newest decision is 2, at snapshot 3" in told
    assert (shop.ids("items"), shop.decisions("items")) == ([10, 20], [1, 2])
    assert "nothing is missing in the table items" in await place.run(*advice.split())
    await place.run("replay", "verify", *OF)
    assert (await place.values("replay", "verify", *OF, "--table", "items"))["tables"].keys() == {"items"}
    refused = await place.run("replay", "verify", *OF, "--table", "bills", status=2)
    assert "no further table 'bills' of this stream. It has: items, taxes" in refused


@pytest.mark.matrix
async def test_the_statement_of_an_operator_is_compared_with_the_table(place: Deployment) -> None:
    # A coordinator writes the state record, from which the command begins.
    settings = load(place.config(), {})
    async with running(settings):
        await until(lambda: stream_records(settings, STREAM), lambda held: held.record is not None)
    place.shop.rollback("items", 1)
    resume = ("stream", "resume", *OF, "--table", "items")
    refused = await place.run(*resume, status=2)
    (head,) = re.findall(r"The head of the table is (\S+)", refused)
    assert "decision 1 is its newest one" in await place.run(*resume, "--head", head)
    assert "is not in its history" in await place.run(*resume, "--head", "99:99", status=2)


@pytest.mark.matrix
async def test_orphans_of_a_further_table_are_listed_and_deleted(place: Deployment) -> None:
    listed = await place.values("orphans", "list", *OF, "--table", "taxes", "--grace", "1ms")
    assert listed["files"] == []
    found = await place.values("orphans", "list", *OF, "--grace", "1ms")
    assert [(each["table"], each["writer"]) for each in found["files"]] == [("items", "w-items")]
    deleted = await place.values("orphans", "delete", *OF, "--table", "items", "--grace", "1ms")
    assert [each["status"] for each in deleted["files"]] == ["deleted"]
    assert place.shop.ids("items") == [10, 20]


async def test_the_janitor_sweeps_each_table(place: Deployment) -> None:
    settings = load(place.config(), {})
    shop = settings.streams[STREAM]
    quick = shop.model_copy(update={"janitor": shop.janitor.model_copy(update={"grace": 0.001})})
    settings = settings.model_copy(update={"streams": {STREAM: quick}})
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(settings, STREAM, theirs))
    process.start()
    theirs.close()
    swept = await asyncio.to_thread(ours.recv)
    await asyncio.to_thread(process.join)
    assert (swept["deleted"], swept["left"], "not_searched" in swept) == (1, 0, False)
    assert place.shop.ids("items") == [10, 20]


async def test_one_table_is_built_again(place: Deployment) -> None:
    into = f"file://{place.shop.root}/shop/copy"
    rebuild = (
        "replay",
        "rebuild",
        *OF,
        "--table",
        "items",
        "--into",
        into,
        "--option",
        "identifier=shop.copy",
    )
    told = await place.run(*rebuild)
    assert "The stream still commits to the former table items" in told
    place.shop.places["copy"] = into
    assert (place.shop.ids("copy"), place.shop.decisions("copy")) == ([10, 20], [1, 2])


async def test_a_stream_whose_topics_are_lost_continues_with_all_tables_or_without_one(
    place: Deployment, unique: str
) -> None:
    place.prefix = f"{unique}-new"
    await make_topics(place.bootstrap, place.prefix)
    found = await place.values("stream", "adopt", *OF, "--dry-run")
    assert found["tables"] == {"items": 2, "taxes": 3}
    place.shop.rollback("items", 1)
    refused = await place.run("stream", "adopt", *OF, status=2)
    (option,) = re.findall(r"--leave-out \w+", refused)
    assert option == "--leave-out items"
    told = await place.run("stream", "adopt", *OF, *option.split())
    assert "table items is left out: it gets no commits until you state that it is right" in told
