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
    assert rows == {
        name: (each.partitions, dict(each.settings), dict(each.besides)) for name, each in specs.items()
    }
    for spec in specs.values():
        checked = {each.setting for each in REQUIREMENTS if spec.role in each.roles}
        assert spec.settings.keys() <= checked, "what is needed is checked"


def test_replicated_topics_have_what_the_page_says() -> None:
    replicated = topic_specs(TopicNames(), replication_factor=3)
    more = [
        dict(each.besides.items() - plain.besides.items())
        for each, plain in zip(replicated, topic_specs(TopicNames()), strict=True)
    ]
    assert more == [{"min.insync.replicas": "2"}] * 4
    assert "each has `min.insync.replicas=2` besides" in PAGE
