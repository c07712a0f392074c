"""The page about Kafka names the topics as `topics create` makes them, and the settings that are checked."""

import re
from pathlib import Path
from typing import Final

from sluicegate.kafka.topics import REQUIREMENTS, TopicNames, topic_specs

PAGE: Final = (Path(__file__).parents[2] / "docs" / "kafka.md").read_text(encoding="utf-8")
ROW: Final = re.compile(r"^\| `([\w.-]+)` \| (\d+) \| (.*?) \|(.*?)\|$", re.MULTILINE)


def settings(cell: str) -> dict[str, str]:
    return dict(each.split("=") for each in re.findall(r"`([^`]+)`", cell))


def test_the_topics_are_those_that_the_command_creates() -> None:
    specs = {each.name: each for each in topic_specs(TopicNames())}
    rows = {
        name: (int(count), settings(needed), settings(besides))
        for name, count, needed, besides in ROW.findall(PAGE)
    }
    assert {name: (count, needed | besides) for name, (count, needed, besides) in rows.items()} == {
        name: (each.partitions, dict(each.settings)) for name, each in specs.items()
    }
    for name, (_, needed, _) in rows.items():
        spec = specs[name]
        checked = {each.setting for each in REQUIREMENTS if spec.role in each.roles}
        assert needed.keys() == checked & spec.settings.keys(), name


def test_replicated_topics_have_what_the_page_says() -> None:
    replicated = topic_specs(TopicNames(), replication_factor=3)
    more = [
        dict(each.settings.items() - plain.settings.items())
        for each, plain in zip(replicated, topic_specs(TopicNames()), strict=True)
    ]
    assert more == [{"min.insync.replicas": "2"}] * 4
    assert "each has `min.insync.replicas=2` besides" in PAGE
