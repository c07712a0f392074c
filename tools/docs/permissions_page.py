"""The reference page of the permissions of Kafka, with the commands that grant them."""

from collections.abc import Iterator
from itertools import groupby
from typing import Final

from sluicegate.kafka.permissions import Client, Permission, of_client
from sluicegate.kafka.topics import TopicNames
from tools.docs.markdown import cell

HEADING: Final = """\
# Permissions

These are the operations of Kafka's ACLs that each client needs, for the default names of the topics and of
the group. [Security](../security.md#permissions) explains the border between jobs and coordinators.

READ, WRITE and DELETE on a topic include DESCRIBE; READ on a group does, too. Brokers before 3.0 also demand
IDEMPOTENT_WRITE on the cluster of all clients with WRITE. Give each client a principal of its own. A person
with several tasks needs the lines of each of them. Each line is needed, and the lines of a client suffice
for its work: a test proves both with the authorizer of a broker.
"""
_NAMES: Final = TopicNames()
_GROUP: Final = "sluicegate"
_WORDS: Final = {
    Client.COORDINATOR: ("Coordinator", "coordinator", "`run`, and `check` with its settings."),
    Client.DRIVER: (
        "Driver of a job",
        "driver",
        "The driver of Spark, or a Python program that completes checkpoints.",
    ),
    Client.TASK: (
        "Tasks of a job",
        "task",
        "Executors, and other processes that only write. They share the principal of their driver as a rule.",
    ),
    Client.READER: (
        "Commands that change nothing",
        "reader",
        "`status`, `history`, `audit`, `wait`, `replay verify`, `orphans list`, "
        "`dead-letters list` and `show`.",
    ),
    Client.OPERATOR: (
        "Orders",
        "operator",
        "The other commands of `stream`, those of `region`, `assignment`, `commit`; `replay repair`, "
        "`dead-letters retry` and `drop`.",
    ),
    Client.KEEPER: (
        "Repair of state records",
        "keeper",
        "`stream recover`, `stream forget` and `stream adopt`.",
    ),
    Client.CREATOR: (
        "Creation of topics",
        "creator",
        "`topics create`. CREATE on the cluster is enough for its first lines.",
    ),
}


def render() -> str:
    """Return the page."""
    return HEADING + "".join("".join(_part(client)) for client in Client)


def _part(client: Client) -> Iterator[str]:
    title, principal, about = _WORDS[client]
    yield f"\n## {title}\n\n{about}\n\n| operation | on | step |\n|---|---|---|\n"
    lines = of_client(client)
    for each in lines:
        kind, name = _resource(each)
        yield f"| {each.operation.name} | {kind} `{name}` | {cell(each.step)} |\n"
    yield "\n```sh\n"
    for (kind, name), found in groupby(sorted(lines, key=_resource), _resource):
        operations = " ".join(f"--operation {each.operation.name.title().replace('_', '')}" for each in found)
        yield (
            f"kafka-acls.sh --bootstrap-server kafka:9092 --add --allow-principal User:{principal} "
            f"{operations} --{kind} {name}\n"
        )
    yield "```\n"


def _resource(permission: Permission) -> tuple[str, str]:
    topic = permission.topic
    return ("group", _GROUP) if topic is None else ("topic", f"{_NAMES.prefix}.{topic}")
