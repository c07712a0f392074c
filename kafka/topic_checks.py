"""Requirements on the topics, as data that checks itself and names the remedy of each problem."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class TopicRole(StrEnum):
    """Role of a topic. The name of the topic ends with it."""

    EVENTS = "events"
    COMMITS = "commits"
    STATE = "state"
    DEAD_LETTERS = "dead-letters"


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """Desired properties of one topic."""

    name: str
    role: TopicRole
    partitions: int
    replication_factor: int
    settings: Mapping[str, str]

    @property
    def aligned(self) -> bool:
        """True if a stream has the same partition number in this topic as in the other aligned topics."""
        return self.role is not TopicRole.DEAD_LETTERS


@dataclass(frozen=True, slots=True)
class ObservedTopic:
    """Actual properties of one topic."""

    partitions: int
    # The smallest number of replicas of any partition.
    replicas: int
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TopicProblem:
    """A property of a topic that endangers the protocol."""

    topic: str
    wrong: str
    remedy: str
    """Instruction to fix the problem, with the command."""
    missing: bool = False
    """True if the topic does not exist."""
    warning: bool = False
    """True if the service runs all the same."""

    def __str__(self) -> str:
        return f"{self.topic}: {self.wrong}. {self.remedy}"


@dataclass(frozen=True, slots=True)
class Requirement:
    """Requirement on one setting of the topics that have certain roles."""

    setting: str
    roles: frozenset[TopicRole]
    holds: Callable[[str, TopicSpec, ObservedTopic], bool]
    because: str
    wanted: Callable[[str, TopicSpec], str] = lambda setting, spec: spec.settings[setting]
    warning: bool = False


ALL: Final = frozenset(TopicRole)
BY_TIME: Final = ALL - {TopicRole.STATE}
ORDERED: Final = ALL - {TopicRole.DEAD_LETTERS}


def _at_least(setting: str) -> Callable[[str, TopicSpec, ObservedTopic], bool]:
    return lambda value, spec, _: int(value) >= int(spec.settings[setting])


REQUIREMENTS: Final = (
    Requirement(
        "message.timestamp.type",
        ORDERED,
        lambda value, _, __: value == "LogAppendTime",
        "timers run on append times, and a producer's clock must not reach them",
    ),
    Requirement(
        "cleanup.policy",
        BY_TIME,
        lambda value, _, __: "compact" not in value,
        "compaction drops events that share a key, among them files that are not committed yet",
    ),
    Requirement(
        "cleanup.policy",
        frozenset({TopicRole.STATE}),
        lambda value, _, __: value == "compact",
        "the newest record of each stream must stay for ever, and older ones must go",
    ),
    Requirement(
        "max.message.bytes",
        ALL,
        _at_least("max.message.bytes"),
        "messages of the configured size would be refused",
    ),
    Requirement(
        "retention.ms",
        frozenset({TopicRole.EVENTS}),
        lambda value, _, __: int(value) < 0,
        "events are deleted at this age also if a stream still needs them",
        warning=True,
    ),
    Requirement(
        "retention.ms",
        frozenset({TopicRole.COMMITS}),
        lambda value, spec, _: int(value) < 0 or int(value) >= int(spec.settings["retention.ms"]),
        "notifications would be deleted earlier than the configured retention says",
    ),
    Requirement(
        "retention.bytes",
        frozenset({TopicRole.EVENTS, TopicRole.COMMITS}),
        lambda value, _, __: int(value) < 0,
        "a burst of events would delete older ones that are not committed yet",
    ),
    Requirement(
        "unclean.leader.election.enable",
        ORDERED,
        lambda value, _, __: value == "false",
        "a replica that lags could become the leader, and acknowledged messages would be gone",
    ),
    Requirement(
        "min.insync.replicas",
        ALL,
        lambda value, _, topic: topic.replicas < 2 or int(value) >= 2,
        "a message would count as acknowledged while only one replica has it",
        lambda _, __: "2",
    ),
    Requirement(
        "min.insync.replicas",
        ALL,
        lambda value, _, topic: int(value) <= topic.replicas,
        "there are fewer replicas than that, so nothing can be written",
        lambda _, spec: spec.settings.get("min.insync.replicas", "1"),
    ),
)


def find_problems(
    specs: Sequence[TopicSpec], observed: Mapping[str, ObservedTopic], bootstrap_servers: str
) -> list[TopicProblem]:
    """Compare the topics as they are with how they have to be."""
    return [
        *_missing(specs, observed, bootstrap_servers),
        *_misaligned(specs, observed, bootstrap_servers),
        *_misconfigured(specs, observed, bootstrap_servers),
    ]


def _missing(
    specs: Iterable[TopicSpec], observed: Mapping[str, ObservedTopic], servers: str
) -> Iterator[TopicProblem]:
    for spec in specs:
        if spec.name not in observed:
            settings = " ".join(f"--config {key}={value}" for key, value in sorted(spec.settings.items()))
            yield TopicProblem(
                spec.name,
                "the topic does not exist, or this client may not describe it",
                f"Create it: kafka-topics.sh --bootstrap-server {servers} --create --topic {spec.name} "
                f"--partitions {spec.partitions} --replication-factor {spec.replication_factor} {settings}",
                missing=True,
            )


def _misaligned(
    specs: Sequence[TopicSpec], observed: Mapping[str, ObservedTopic], servers: str
) -> Iterator[TopicProblem]:
    events = next((spec.name for spec in specs if spec.role is TopicRole.EVENTS), None)
    if events is None or events not in observed:
        return
    wanted = observed[events].partitions
    for spec in specs:
        if not spec.aligned or spec.name not in observed or observed[spec.name].partitions == wanted:
            continue
        found = observed[spec.name].partitions
        remedy = (
            f"Add the partitions that are missing: kafka-topics.sh --bootstrap-server {servers} --alter "
            f"--topic {spec.name} --partitions {wanted}"
            if found < wanted
            else "Kafka cannot take partitions away. If no stream has registered yet, delete it and "
            "create it again; otherwise use another topic prefix, or another cluster, for new streams"
        )
        yield TopicProblem(
            spec.name,
            f"it has {found} partitions and {events} has {wanted}; a stream has the same partition in both",
            remedy,
        )


def _misconfigured(
    specs: Iterable[TopicSpec], observed: Mapping[str, ObservedTopic], servers: str
) -> Iterator[TopicProblem]:
    for spec in specs:
        topic = observed.get(spec.name)
        if topic is None:
            continue
        for required in REQUIREMENTS:
            value = topic.settings.get(required.setting)
            if spec.role not in required.roles or value is None or required.holds(value, spec, topic):
                continue
            wanted = required.wanted(required.setting, spec)
            yield TopicProblem(
                spec.name,
                f"{required.setting} is {value!r}: {required.because}",
                f"Set it: kafka-configs.sh --bootstrap-server {servers} --alter --entity-type topics "
                f"--entity-name {spec.name} --add-config {required.setting}={wanted}",
                warning=required.warning,
            )
