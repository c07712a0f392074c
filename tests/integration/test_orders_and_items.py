"""The example of orders and their items: sums agree for a reader by the vector through 20 kills."""

import asyncio
import os
import random
import runpy
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from tests.integration.coordinator import config_of_tables, coordinator_process
from tests.integration.job import make_topics
from tests.integration.waiting import until, watched

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
KILLS: Final = 20


class Reader(threading.Thread):
    """Reads both tables again and again, as the example does."""

    def __init__(self, example: dict[str, Any], lake: Path) -> None:
        super().__init__(name="reader", daemon=True)
        self.reads = example["Reads"]()
        self._open, self._lake = example["open_catalog"], lake
        self._over = threading.Event()
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            with closing(self._open(self._lake)) as catalog:
                while not self._over.is_set():
                    try:
                        self.reads.look(catalog)
                    except LookupError:
                        continue
        except Exception as error:
            self.error = error

    def end(self) -> None:
        self._over.set()
        self.join()
        assert self.error is None, self.error


@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.matrix
@pytest.mark.spark
async def test_orders_agree_with_their_items_through_kills(
    kafka_bootstrap: str, unique: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example = runpy.run_path(str(EXAMPLES / "orders_and_items.py"))
    await make_topics(kafka_bootstrap, unique)
    uri = f"sqlite:///{tmp_path / 'catalog.db'}"
    place = tmp_path, kafka_bootstrap, unique, "shop", tmp_path / "shop" / "orders"
    settings = config_of_tables(*place, {"items": "shop.items"}, uri)
    log, dice = tmp_path / "log", random.Random(unique)
    example["open_catalog"](tmp_path).close()
    command = [sys.executable, str(EXAMPLES / "orders_and_items.py"), "write", kafka_bootstrap, str(tmp_path)]
    environment = {**os.environ, "TOPIC_PREFIX": unique}
    reader = Reader(example, tmp_path)
    with (tmp_path / "writer.log").open("wb") as output:
        writer = subprocess.Popen(  # noqa: ASYNC220 - it is watched below
            command, env=environment, stdout=output, stderr=output
        )
    try:
        reader.start()
        with watched(reader), watched(writer):
            for _ in range(KILLS):
                before = reader.reads.orders
                with coordinator_process(settings, log) as process:
                    await until(lambda: reader.reads.orders, lambda now: now > before, by=process, log=log)  # noqa: B023
                    # Killed somewhere in one of the next commits.
                    await asyncio.sleep(dice.uniform(0, 1))  # time: any moment
    finally:
        writer.kill()
        writer.wait()
    reader.end()
    reads = reader.reads
    with closing(example["open_catalog"](tmp_path)) as catalog:
        orders, items = (catalog.load_table(f"shop.{name}").scan().to_arrow() for name in ("orders", "items"))
    print(f"{KILLS} kills, {reads}")
    assert (reads.torn, reads.vectors > KILLS) == (0, True)
    ids = sorted(orders["id"].to_pylist())
    assert ids == [*range(len(ids))]
    assert sum(orders["total"].to_pylist()) == sum(items["price"].to_pylist())
    assert set(items["order"].to_pylist()) == {*ids}
