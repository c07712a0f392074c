"""Questions of a driver to the coordinator: registrations and probes, and the wait for commits over a limit.

A driver waits for the coordinator in these two steps only: for the answer to a registration, and, if its
options limit what is not committed, for commits. A probe is a registration that changes nothing.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, Protocol

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from sluicegate.events.codec import Flaw
from sluicegate.events.envelope import partition_of
from sluicegate.events.models import RegionRegistered
from sluicegate.events.notifications import RegistrationAnswered, read_notification
from sluicegate.events.problems import Code
from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import hit
from sluicegate.kafka.clients import start_client, stop_client
from sluicegate.kafka.reading import read_on
from sluicegate.writer_hooks.errors import (
    PublishFailed,
    RegionReplaced,
    RegistrationRefused,
    RegistrationUnanswered,
    TooManyUncommitted,
)
from sluicegate.writer_hooks.options import Backpressure, Repetition, questions
from sluicegate.writer_hooks.publisher import LoopThread, shared_publisher
from sluicegate.writer_hooks.region import FOREVER, Event, Region, Registered

_log = logging.getLogger(__name__)

_PASSING: Final = frozenset({Code.NO_POLICY, Code.BASE_UNRESOLVED})
"""Refusals that end by themselves, mostly at once."""
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 0.5
"""Seconds between two questions while such a refusal lasts. The pauses grow by two."""
_POLL_MS: Final = 500
_LEAST_WAIT: Final = 1.0  # seconds
_FIRST_WARNING: Final = 10.0

Stopped = Callable[[], bool]
"""Function that returns True if the driver is being stopped."""

_MOVED_ON: Final = frozenset({Code.BASE_DIFFERS, Code.INCARNATION_LIVE, Code.BASE_UNRESOLVED})
"""Refusals of a new incarnation that came after a newer decision, or another driver."""
_ENDED: Final = frozenset(
    {
        Code.ASSIGNMENT_DIFFERS,
        Code.ASSIGNMENT_OLDER,
        Code.ASSIGNMENT_TOO_HIGH,
        Code.ASSIGNMENT_WITHDRAWN,
        Code.INCARNATION_ENDED,
        Code.REGION_REMOVED,
    }
)
"""Answers to a probe of the own incarnation which state that it has ended."""
_UNKNOWN: Final = frozenset({None, Code.BASE_DIFFERS, Code.BASE_UNRESOLVED})
"""Answers to a probe of the own incarnation as of a new one: the log does not have its registration."""


def running() -> bool:
    """Return False: nobody stops the driver."""
    return False


def ask(
    region: Region,
    registration: Event,
    stopped: Stopped = running,
    *,
    patience: float = math.inf,
) -> RegistrationAnswered:
    """Publish a registration or a probe, and return its answer.

    `patience`: seconds for the answer, at most the registration timeout. Raises PublishFailed, TopicMissing
    or RegistrationUnanswered.
    """
    deadline = time.monotonic() + min(region.registration_timeout, patience)
    publisher = shared_publisher(region.kafka)
    partition = partition_of(region.stream, publisher.partitions(region.commits_topic, *region.start_limit))
    probe = isinstance(registration.body, RegionRegistered) and registration.body.probe

    def publish() -> None:
        hit(Failpoint.HOOK_PROBE_BEFORE if probe else Failpoint.HOOK_REGISTRATION_BEFORE)
        publisher.publish(region.events_topic, [registration], *region.start_limit)
        hit(Failpoint.HOOK_PROBE_AFTER if probe else Failpoint.HOOK_REGISTRATION_AFTER)

    answers = TopicPartition(region.commits_topic, partition)
    answer = _await_answer(region, registration.envelope.id, answers, deadline, publish, stopped)
    if not probe:
        hit(Failpoint.HOOK_ANSWER_AFTER)
    return answer


def ask_until_known(
    region: Region,
    registration: Callable[[], Event],
    stopped: Stopped = running,
    *,
    patience: float = math.inf,
) -> tuple[Event, RegistrationAnswered]:
    """Ask as `ask` does, and again while the answer is a refusal that ends by itself.

    The stream's first coordinator has not logged its settings yet, or a decision that moves the region has no
    outcome yet. Such an answer is returned only at the end of the wait. `registration` makes the event of
    each attempt. Returns the event that was answered, and its answer.
    """
    begun = time.monotonic()
    deadline = begun + min(region.registration_timeout, patience)
    pause, warning = _FIRST_PAUSE, begun + _FIRST_WARNING
    while True:
        event = registration()
        answer = ask(region, event, stopped, patience=patience)
        problem, now = answer.problem, time.monotonic()
        if problem is None or problem.code not in _PASSING or now + pause >= deadline or stopped():
            return event, answer
        if now >= warning:
            _log.warning(
                "the registration of the region %s of the stream %s is refused for %d s, and is tried again. "
                "%s",
                *(region.name, region.stream, now - begun, answer.reason or problem.code),
            )
            warning = now + 2 * (now - begun)
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def has_moved_on(answer: RegistrationAnswered) -> bool:
    """Return True if the refused one does not know the newest decision, or the live incarnation."""
    return answer.problem is not None and answer.problem.code in _MOVED_ON


def require_accepted(region: Region, incarnation: str, answer: RegistrationAnswered) -> None:
    """Raise RegistrationRefused if the answer is a refusal."""
    if answer.accepted:
        return
    code = answer.problem.code if answer.problem is not None else "no reason given"
    raise RegistrationRefused(
        f"the coordinator refused the registration of the region {region.name} of the stream "
        f"{region.stream} (incarnation {incarnation}, {code}). {answer.reason}".rstrip()
    )


def require_live(
    region: Region,
    own: Registered,
    answer: RegistrationAnswered,
    place: str,
    advice: str = "Start a new driver, which begins at the committed position",
) -> None:
    """Raise RegionReplaced unless the answer to a probe states that this registration is in force.

    `place` names what another process of the same incarnation would run, and `advice` how a driver continues
    that the log does not know, for the text.
    """
    if answer.live == own.incarnation:
        if answer.run not in (None, own.run):
            raise RegionReplaced(replaced(region, f"another process runs {place}"))
        return
    if answer.live is not None:
        raise RegionReplaced(replaced(region, f"the incarnation {answer.live} is live there"))
    code = answer.problem.code if answer.problem is not None else None
    if code in _UNKNOWN:
        raise RegionReplaced(
            f"this driver does not write the region {region.name} of the stream {region.stream} any more: "
            "the log does not have its registration, as after `sluicegate stream adopt`, or on other topics. "
            f"Nothing that it completes counts. {advice}"
        )
    if code in _ENDED:
        raise RegionReplaced(
            f"this driver does not write the region {region.name} of the stream {region.stream} any more: "
            f"its incarnation has ended, and nothing that it writes from now on counts. {answer.reason}"
        )


def replaced(region: Region, reason: str) -> str:
    """Return the text of RegionReplaced."""
    return (
        f"this driver does not write the region {region.name} of the stream {region.stream} any more: "
        f"{reason}. Nothing that it completes from now on counts. If another driver was started there, leave "
        "this one stopped; else start a new driver"
    )


# --- the wait for commits -----------------------------------------------------------------------------


class CommitWait(Protocol):
    """Writer that is compared with the limits of its options before another checkpoint begins."""

    def excess(self) -> str | None:
        """Return the limit that is exceeded, as a text; None if there is none."""
        ...

    def ask(self) -> None:
        """Ask the coordinator for the committed position: a notification may never arrive here."""
        ...

    def pause(self, excess: str) -> None:
        """Wait for a short time. Raises HookError if the writer must end."""
        ...


def await_commits(
    region: Region,
    limit: Backpressure,
    writer: CommitWait,
    advice: str,
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Wait until another checkpoint may begin.

    `advice` states how a writer continues that fails over a limit. Raises TooManyUncommitted if the options
    say so, and the errors of `writer`.
    """
    warning = Repetition(now(), _FIRST_WARNING)
    question = questions(limit.reaction, now())
    while (excess := writer.excess()) is not None:
        if question.is_due(now()):
            writer.ask()
            continue
        place = f"region {region.name} of stream {region.stream}: {excess}"
        if limit.reaction == "fail":
            raise TooManyUncommitted(
                f"{place}. Nothing is lost; `sluicegate status` shows what the commits wait for. {advice}"
            )
        if warning.is_due(now()):
            _log.warning("%s; `sluicegate status` shows what the commits wait for", place)
        writer.pause(excess)


# --- the wait for an answer ---------------------------------------------------------------------------


def _await_answer(
    region: Region,
    registration: str,
    source: TopicPartition,
    deadline: float,
    publish: Callable[[], None],
    stopped: Callable[[], bool],
) -> RegistrationAnswered:
    """Call `publish`, which publishes the registration or the probe of this id, and return its answer.

    `source` is the partition of the answers; `deadline` is in monotonic seconds. A missing answer is logged
    after ten seconds, and then at doubling intervals. Raises PublishFailed, and the errors of `publish`.
    Raises RegistrationUnanswered if there is no answer in time, or if `stopped` returns True because the
    query is being stopped.
    """
    thread = LoopThread("sluicegate-registration")
    try:
        # Position the consumer before the registration is published, so that it cannot miss the answer.
        consumer = _start_at_end(thread, region, source)
        answer = thread.start(_read_answer(consumer, registration, deadline))
        publish()
        found = _await(region, answer, stopped)
    except KafkaError as error:
        raise PublishFailed(
            f"the answer to the registration could not be read from {region.commits_topic} ({error!r}); "
            "starting again is safe"
        ) from error
    finally:
        thread.stop()
    if found is None:
        raise RegistrationUnanswered(_unanswered(region))
    return found


def _start_at_end(thread: LoopThread, region: Region, partition: TopicPartition) -> AIOKafkaConsumer:
    timeout, option = region.start_limit
    try:
        return thread.call(_consumer_at_end(region, partition), timeout)
    except (KafkaError, TimeoutError) as error:
        raise PublishFailed(
            f"the topic {partition.topic} on {region.kafka.bootstrap_servers} cannot be read within "
            f"{timeout:g} s ({option}): {error!r}; the region was not registered, and starting again is safe"
        ) from error


def _await(
    region: Region, answer: "Future[RegistrationAnswered | None]", stopped: Callable[[], bool]
) -> RegistrationAnswered | None:
    pause, began = _FIRST_WARNING, time.monotonic()
    due = began + pause
    while True:
        with contextlib.suppress(TimeoutError):
            return answer.result(min(_POLL_MS / 1000, max(0.0, due - time.monotonic())))
        # The wait can time out at the moment of the answer; a result that is present counts.
        if answer.done():
            return answer.result()
        if stopped():
            raise RegistrationUnanswered(
                f"the query of the region {region.name} of the stream {region.stream} was stopped while its "
                "registration waited for a coordinator; starting again is safe"
            )
        if time.monotonic() >= due:
            _warn_waiting(region, time.monotonic() - began)
            pause *= 2
            due += pause


def _warn_waiting(region: Region, seconds: float) -> None:
    limit = region.registration_timeout
    _log.warning(
        "no coordinator has answered the registration of the region %s of the stream %s for %d s; the query "
        "waits %s, and writes nothing before. %s",
        *(region.name, region.stream, seconds),
        "until one does" if limit == math.inf else f"up to {limit:g} s (registration.timeout)",
        coordinator_advice(region),
    )


def _unanswered(region: Region) -> str:
    return (
        f"no coordinator answered the registration of the region {region.name} of the stream {region.stream} "
        f"within {region.registration_timeout:g} s. {coordinator_advice(region)}. The option "
        f"registration.timeout waits longer (seconds, or {FOREVER})"
    )


def coordinator_advice(region: Region) -> str:
    """Return what to look at while no coordinator answers."""
    return (
        f"Check that a coordinator runs against {region.kafka.bootstrap_servers} with the topic prefix "
        f"{region.topic_prefix}, that it is ready (/readyz), and that the stream is configured there"
    )


async def _consumer_at_end(region: Region, partition: TopicPartition) -> AIOKafkaConsumer:
    """Return a consumer of the answers, positioned at the current end of the partition."""
    consumer = AIOKafkaConsumer(
        **region.kafka.client_options(),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    try:
        await start_client(consumer)
        consumer.assign([partition])
        end = await consumer.end_offsets([partition])
        consumer.seek(partition, end[partition])
    except BaseException:
        await stop_client(consumer)
        raise
    return consumer


async def _read_answer(
    consumer: AIOKafkaConsumer, registration: str, deadline: float
) -> RegistrationAnswered | None:
    """Return the answer to a registration, None if there is none in time. Closes the consumer."""
    try:
        left = max(deadline - time.monotonic(), _LEAST_WAIT)
        async with asyncio.timeout(None if left == math.inf else left):
            while True:
                for records in (await read_on(consumer, timeout_ms=_POLL_MS)).values():
                    for record in records:
                        answer = _answer(record, registration)
                        if answer is not None:
                            return answer
    except TimeoutError:
        return None
    finally:
        await stop_client(consumer)


def _answer(record: ConsumerRecord, registration: str) -> RegistrationAnswered | None:
    found = read_notification(record.headers, record.value)
    if isinstance(found, Flaw) or not isinstance(found.body, RegistrationAnswered):
        return None
    return found.body if found.body.registration == registration else None
