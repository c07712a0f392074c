"""A campaign of damaged messages: `python -m tools.bench.fuzz --seconds 600`.

Codec, whole machines and the rules take turns; with `--kafka` a real coordinator is attacked too, and for
each of its messages the letter or the rule is found.
Ends with status 1 at the first message that does harm, and names its seed.
"""

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

import structlog

from sluicegate.cli.local.servers import EmbeddedKafka
from tests.integration.conftest import Place
from tests.integration.job import create_table, make_topics
from tests.security.fuzzing import (
    Broken,
    attack,
    classify_all,
    classify_hostile,
    confuse_machine,
    read_hostile,
    words,
)


def main() -> int:
    """Run the campaign; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, help="of the first message; random by default")
    parser.add_argument("--kafka", action="store_true", help="attack a real coordinator as well")
    given = parser.parse_args()
    # An attacked coordinator has a warning for nearly every message.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    seed = Random().randrange(10**9) if given.seed is None else given.seed
    found: Counter[str] = Counter(seeds=0)
    deadline = time.monotonic() + given.seconds
    try:
        while time.monotonic() < deadline:
            found.update(read_hostile(seed + found["seeds"], 200))
            found.update(confuse_machine(seed + found["seeds"]))
            found.update(classify_hostile(seed + found["seeds"], 200))
            found["seeds"] += 1
        if given.kafka:
            found.update(asyncio.run(_attack(seed)))
            found.update(asyncio.run(_classify(seed)))
    except Broken as broken:
        print(broken, file=sys.stderr)
        return 1
    print(f"first seed {seed}: {words(found)}")
    return 0


async def _attack(seed: int) -> Counter[str]:
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka() as kafka:
        topics = await make_topics(kafka.bootstrap, "fuzz")
        table = create_table(Path(folder))
        return await attack(
            Place(kafka.bootstrap, "fuzz", topics, Path(folder), table), seed, rounds=20, flood=1000
        )


async def _classify(seed: int) -> Counter[str]:
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka() as kafka:
        topics = await make_topics(kafka.bootstrap, "fuzz")
        table = create_table(Path(folder))
        place = Place(kafka.bootstrap, "fuzz", topics, Path(folder), table)
        return await classify_all(place, seed, count=20_000)


if __name__ == "__main__":
    sys.exit(main())
