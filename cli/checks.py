"""Checks of `sluicegate check`: each returns findings, with the remedy of a problem."""

import contextlib
import math
import time
import uuid
from collections.abc import Awaitable
from typing import Any, Final, NamedTuple, cast

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupAuthorizationFailedError, KafkaError
from aiokafka.protocol.group import HeartbeatRequest
from redis.asyncio import Redis
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError, ResponseError

from sluicegate.cli.errors import kafka_away
from sluicegate.cli.findings import Finding, fine, problem, warning
from sluicegate.cli.kafka import admin_client, count_members, security
from sluicegate.cli.orders import settled_keys
from sluicegate.cli.proofs import RACES, describe_table, prove_storage
from sluicegate.coordinator.core.effects import NO_DIGEST
from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.core.table import asked_decision
from sluicegate.coordinator.observe.messages import duration, format_problem
from sluicegate.coordinator.service.keys import differences
from sluicegate.coordinator.settings.model import (
    RedisSettings,
    Settings,
    SettingsError,
    StreamSettings,
    own_keys,
)
from sluicegate.coordinator.stream.continuity import other_user
from sluicegate.coordinator.stream.table import open_committer
from sluicegate.events.models import FurtherTable
from sluicegate.events.problems import Code, Problem
from sluicegate.kafka.clients import patiently
from sluicegate.kafka.internals import send_admin_request
from sluicegate.kafka.permissions import Client, format_grants, lacking
from sluicegate.kafka.topics import TopicError, find_fragility, inspect_topics
from sluicegate.lakes.capabilities import Cleaner, GroupCommitter, NamesCleaner, OpensNewest
from sluicegate.lakes.maintenance import format_problems
from sluicegate.lakes.port import (
    Absent,
    Adapter,
    Committer,
    LakeError,
    LakeUnavailable,
    TableMaintenance,
    TableRef,
    TableRefused,
    TableReplaced,
    TableState,
    Unproven,
)
from sluicegate.lakes.registry import adapter
from sluicegate.state_store.redis_store import NO_CLUSTER, is_of_cluster, redis_client
from sluicegate.texts import counted

# Checks of `sluicegate check` that use Kafka.


async def check_kafka(settings: Settings) -> list[Finding]:
    """Check brokers, topics and group. Without brokers, report only that problem."""
    reached, *group = await check_brokers(settings)
    if not reached.ok:
        return [reached]
    return [reached, *await check_topics(settings), *group, *await check_grants(settings)]


async def check_brokers(settings: Settings) -> list[Finding]:
    """Check the brokers, and then the group. Without brokers, report only that problem."""
    try:
        async with admin_client(settings) as admin:
            brokers = (await patiently(admin.describe_cluster))["brokers"]
            group = [await _check_group(settings, admin)]
            if group[0].ok:
                group += await _check_members(settings)
    except SettingsError as error:
        return [problem("kafka", str(error))]
    except (KafkaError, TimeoutError, OSError) as error:
        return [problem("kafka", kafka_away(settings, error))]
    reached = f"{counted(len(brokers), 'broker')} at {settings.kafka.bootstrap_servers}"
    return [fine("kafka", reached), *group]


async def check_topics(settings: Settings) -> list[Finding]:
    """Compare the topics with what the streams need."""
    specs = settings.kafka.topic_specs()
    try:
        problems, observed = await inspect_topics(settings.kafka.bootstrap_servers, specs, security(settings))
    except TopicError as error:
        return [problem("topics", str(error))]
    findings: list[Finding] = []
    for spec in specs:
        wrong = [each for each in problems if each.topic == spec.name]
        for each in wrong:
            find = warning if each.warning else problem
            # The shorter command creates all missing topics.
            remedy = "Create it: sluicegate topics create" if each.missing else each.remedy
            findings.append(find(f"topic {spec.name}", f"{each.wrong}. {remedy}"))
        if not wrong:
            findings.append(fine(f"topic {spec.name}", "exists, settings fit"))
    if fragile := find_fragility(observed.values()):
        findings.append(warning("replicas of the topics", fragile))
    return findings


async def _check_group(settings: Settings, admin: AIOKafkaAdminClient) -> Finding:
    """Check the permission to join the group, with a heartbeat of an unknown member.

    The broker checks the permission first, and an unknown member changes nothing.
    """
    group = settings.kafka.group_id
    name = f"group {group}"

    async def probe() -> int:
        node = await admin.find_coordinator(group)
        # The admin client has no method that asks for the permissions of a group.
        response = await send_admin_request(admin, HeartbeatRequest(group, -1, ""), node)
        return int(response.error_code)

    try:
        code = await patiently(probe)
    except GroupAuthorizationFailedError:
        code = GroupAuthorizationFailedError.errno
    except KafkaError as error:
        return problem(name, f"its coordinator does not answer: {error}; look at the brokers' logs")
    if code == GroupAuthorizationFailedError.errno:
        return problem(
            name,
            f"this client may not join it; grant READ on the group {group}, or set kafka.group_id "
            "to one that is allowed",
        )
    return fine(name, "may be joined")


async def check_grants(settings: Settings) -> list[Finding]:
    """Name the permissions of a coordinator that this client lacks, as the brokers report them."""
    kafka = settings.kafka
    where = kafka.topic_prefix, kafka.group_id
    try:
        found = await lacking(kafka.client_options(), Client.COORDINATOR, *where)
    except KafkaError as error:
        return [warning("permissions", f"the brokers do not name them: {error}")]
    # The check above reports that of the group.
    found = [each for each in found if each.topic is not None]
    if not found:
        return []
    return [problem("permissions", f"a coordinator needs more. Grant it {format_grants(found, *where)}")]


async def _check_members(settings: Settings) -> list[Finding]:
    """Check that a coordinator runs; nothing is known without permission to describe the group."""
    name = f"group {settings.kafka.group_id}, members"
    members = await count_members(settings)
    if members is None:
        return []
    if not members:
        # Before the first start this is normal.
        return [warning(name, "no coordinator runs, so nothing is committed. Start one: sluicegate run")]
    return [fine(name, f"{members} {'coordinator runs' if members == 1 else 'coordinators run'}")]


async def check_keys(settings: Settings) -> list[Finding]:
    """Compare the signing keys of the members with each other, and with those of this command.

    Other checks report problems of Kafka and of the group.
    """
    told = await settled_keys(settings)
    if told is None or not told.known:
        return []
    name = f"group {settings.kafka.group_id}, signing keys"
    everybody = (*told.known, own_keys(settings.kafka, "the settings of this command"))
    found = differences(everybody)
    if found.refused or found.coming:
        return [
            *(problem(name, each) for each in found.refused),
            *(warning(name, each) for each in found.coming),
        ]
    if all(each.mode == "off" for each in everybody):
        return []
    return [fine(name, f"{len(told.known)} of {told.members} members publish their keys, and all fit")]


# Check of `sluicegate check` that cleaners of other products spare files that wait for their commit.

_SHARE: Final = 0.5
"""Files that have waited for this share of a cleaner's age are in danger."""


def check_cleaning(
    named: str,
    stream: str,
    settings: StreamSettings,
    maintenance: TableMaintenance,
    record: StateRecord | None,
) -> list[Finding]:
    """Compare the age of a table's cleaner with the files of a stream. Raises LakeUnavailable; blocks.

    `named`: the name of the table's checks.
    """
    if not isinstance(maintenance, NamesCleaner):
        return []
    name, cleaner = f"{named}, cleaning", maintenance.cleaner()
    if cleaner is None:
        return [fine(name, "the table forbids that other products delete files")]
    waits = _longest_wait(record)
    if waits > cleaner.age * _SHARE:
        return [warning(name, _pending(stream, cleaner, waits))]
    if cleaner.age < settings.longest_wait:
        return [warning(name, _shorter(stream, settings, cleaner))]
    return [fine(name, f"{_spares(cleaner)}, and files wait for at most {duration(settings.longest_wait)}")]


def check_janitor(stream: str, settings: StreamSettings) -> Finding:
    """Say if the coordinator deletes the orphans of a stream itself."""
    name = f"table of {stream}, orphans"
    if settings.has_janitor:
        age = duration(settings.janitor.grace)
        return fine(
            name, f"the coordinator deletes files that no commit will include, {age} after that is known"
        )
    reason = (
        f"streams.{stream}.janitor.enabled is false"
        if settings.janitor.enabled is False
        else "this format and store have no test for it, so it is off by default"
    )
    return fine(
        name,
        f"the coordinator deletes none: {reason}. To do it: sluicegate orphans delete --stream {stream}",
    )


def _longest_wait(record: StateRecord | None) -> float:
    """Return the seconds for which the oldest file of a stream has waited for its commit."""
    since = [each.since for each in record.waiting.values()] if record is not None else []
    return time.time() - min(since) / 1000 if since else 0.0


def _pending(stream: str, cleaner: Cleaner, waits: float) -> str:
    return (
        f"files have waited for their commit for {duration(waits)}, and {_spares(cleaner)}: it would delete "
        f"them. Do not run it before they are committed, or {_remedy(cleaner, waits / _SHARE)}. Why they "
        f"wait: sluicegate status --stream {stream}"
    )


def _shorter(stream: str, settings: StreamSettings, cleaner: Cleaner) -> str:
    return (
        f"files may wait for their commit for {duration(settings.longest_wait)} "
        f"(streams.{stream}.longest_wait), but {_spares(cleaner)}: it can delete files of pending "
        f"checkpoints. To keep them, {_remedy(cleaner, settings.longest_wait)}"
    )


def _spares(cleaner: Cleaner) -> str:
    source = cleaner.setting or "its default"
    return f"{cleaner.name} spares files that are younger than {duration(cleaner.age)} ({source})"


def _remedy(cleaner: Cleaner, seconds: float) -> str:
    return cleaner.remedy.format(hours=math.ceil(seconds / 3_600))


# Checks of `sluicegate check` that compare a table with the state record of its stream.

PATIENCE: Final = 3.0
"""Seconds in which a coordinator that commits just now writes its record."""


class Comparison(NamedTuple):
    """Result of comparing a table with its state record."""

    finding: Finding
    ahead: bool = False
    """True if the table has more than the record. Right after a commit that is normal."""


def compare(name: str, committer: Committer, found: TableState, record: StateRecord) -> Comparison | None:
    """Ask the table as an idle coordinator does; None if the stream has committed nothing.

    Raises LakeUnavailable; blocks.
    """
    state, stream = record.state, record.stream
    identity = state.table or record.table.identity
    if identity is None:
        return None
    named, expected = f"{name}, history", state.decided + 1
    if found.identity != identity:
        return Comparison(_replaced(named, found.identity, stream))
    if (lost := record.table.lost_decision(state, found)) is not None:
        return Comparison(problem(named, format_problem(lost, stream)))
    # Everything before an unresolved decision is in the table: its absence is proven from the same head.
    known = record.table.known_head(state, found)
    match committer.ask(expected, NO_DIGEST, identity, known):
        case Absent():
            return Comparison(fine(named, _agreement(state, found)))
        case Unproven(expired=True) if state.unresolved is None:
            # The coordinator continues from the head: nothing of the stream can be in it that it misses.
            return Comparison(fine(named, f"{_agreement(state, found)}; the recorded snapshot has expired"))
        case Unproven(reason, _, cause):
            code = Code.TABLE_CONTRADICTS
            unproven = Problem(code=code, number=state.decided, cause=cause, detail=reason)
            return Comparison(problem(named, format_problem(unproven, stream)))
        case TableReplaced(other):
            return Comparison(_replaced(named, other, stream))
    newest = found.newest_decision or expected
    ahead = Problem(code=Code.TABLE_AHEAD, number=state.decided, other=newest)
    note = "If a coordinator has just stopped, start one: it reads the rest of the log and continues"
    return Comparison(problem(named, f"{format_problem(ahead, stream)} {note}"), ahead=True)


def _replaced(check: str, identity: str, stream: str) -> Finding:
    return problem(check, format_problem(Problem(code=Code.TABLE_REPLACED, detail=identity), stream))


def newer_log(found: Finding, state: LogState) -> Finding:
    """Return the finding about a table that agrees with the log, but not with its older state record."""
    named = state.proof is not None and state.proof.decision == asked_decision(state)
    why = "the table was repaired, or an operator named its head" if named else "it lacks the newest outcomes"
    return warning(
        found.check,
        f"agrees with the log, up to decision {state.decided - (state.unresolved is not None)}. The state "
        f"record is older: {why}, as for a moment after each commit. Start a coordinator if none runs: "
        "sluicegate run",
    )


def _agreement(state: LogState, found: TableState) -> str:
    if state.unresolved is not None and (found.newest_decision or 0) < state.decided:
        return f"agrees with the record; decision {state.decided} is not there yet, a coordinator commits it"
    return f"agrees with the record, up to decision {state.decided}"


# Checks of `sluicegate check` that use Redis and the tables.

_REDIS_PROBE: Final = """\
redis.call('HSET', KEYS[1], 'revision', '0')
redis.call('SADD', KEYS[2], 'check')
return redis.call('DEL', KEYS[1], KEYS[2])
"""
"""The commands of a view's write, on keys that no client reads."""


async def check_redis(redis: RedisSettings | None) -> Finding:
    """Check that Redis answers and allows writes; fine if no Redis is configured."""
    if redis is None:
        return fine("redis", "not configured, not needed: only other services would read it")
    client = redis_client(redis.url.get_secret_value(), redis.timeout, redis.client_options())
    try:
        await client.ping()
        # The keys have the coordinator's prefix: an ACL may allow the user only those.
        await client.eval(_REDIS_PROBE, 2, *(f"{redis.key_prefix}:check-{uuid.uuid4().hex}" for _ in "ab"))
        wrong = await _check_names_of_views(client, f"{redis.key_prefix}:streams")
    except AuthenticationError:
        return problem(
            "redis",
            f"{redis.shown} refuses user or password; check redis.username, redis.password and redis.url",
        )
    except NoPermissionError as error:
        return problem(
            "redis",
            f"{redis.shown} refuses: {error}; allow the user the keys {redis.key_prefix}:* and the commands "
            "ping, hget, hgetall, hset, sadd, srem, smembers, del, eval, evalsha, script, multi and exec",
        )
    except (RedisError, OSError) as error:
        if is_of_cluster(error):
            return problem("redis", f"{redis.shown}: {NO_CLUSTER}")
        state = "takes no writes" if isinstance(error, ResponseError) else "does not answer"
        return problem(
            "redis",
            f"{redis.shown} {state} ({error}). Check that it runs, is no replica and has room, and "
            "redis.url: rediss:// if it has TLS at this port, else redis://, and a host of its certificate. "
            "For TLS, check redis.ca_file, and redis.certificate_file and redis.key_file if it asks for them",
        )
    finally:
        await client.aclose()
    if wrong is not None:
        return problem("redis", f"{redis.shown} {wrong}")
    return fine("redis", f"{redis.shown} answers")


async def _check_names_of_views(client: Redis, key: str) -> str | None:
    """Return why the set of the names of streams cannot be used, None if it can. Raises RedisError."""
    try:
        # Not TYPE: an ACL that is enough for the service does not allow it.
        await cast("Awaitable[Any]", client.smembers(key))
    except ResponseError as error:
        if not str(error).startswith("WRONGTYPE"):
            raise
        return (
            f"has a value of another type at the key {key}, so no view can be written. Delete it: "
            f"redis-cli DEL {key}. The next commit of each stream writes its name again"
        )
    return None


def check_stream(
    stream: str, settings: StreamSettings, record: StateRecord | None = None, *, thorough: bool = False
) -> tuple[list[Finding], list[Comparison]]:
    """Check that each table opens, is in scope, fits its state record and can be written; blocks.

    Return the findings, and those among them that compare a table with the record. `thorough`: describe what
    each table allows, too, and prove more.
    """
    name = f"table of {stream}"
    try:
        opened = adapter(settings.format)
    except TableRefused as error:
        return [problem(name, f"streams.{stream}.format cannot be used: {error}")], []
    try:
        table = opened.parse_table(settings.table, settings.adapter_options())
        committer = open_committer(settings)
        maintenance = opened.open_maintenance(table)
        try:
            state = committer.inspect()
            wrong = other_user(record, settings.commit_user) if record is not None else None
            if wrong is not None:
                return [problem(name, format_problem(wrong, stream))], []
            compared = compare(name, committer, state, record) if record is not None else None
            cleaning = check_cleaning(name, stream, settings, maintenance, record)
            further = _Further(stream, settings, committer, record, thorough=thorough)
            for each in state.tables.items():
                further.check(*each)
        finally:
            committer.close()
    except TableRefused as error:
        return [problem(name, f"{settings.table}: {error}")], []
    except LakeUnavailable as error:
        away = f"{settings.table} cannot be read now: {error}; check the storage, try again"
        return [problem(name, away)], []
    found = [
        fine(name, f"{settings.table} is in scope; {_describe(state, settings)}"),
        *([compared.finding] if compared else []),
        *_check_files(name, maintenance),
        *_prove(name, opened, table, state, maintenance, thorough=thorough),
        *_check_names(stream, settings),
        *cleaning,
        check_janitor(stream, settings),
        *further.found,
    ]
    return found, [*([compared] if compared else []), *further.compared]


class _Further:
    """Checks of the further tables of a stream, with the findings so far."""

    def __init__(
        self,
        stream: str,
        settings: StreamSettings,
        committer: Committer,
        record: StateRecord | None,
        *,
        thorough: bool,
    ) -> None:
        self.found: list[Finding] = []
        self.compared: list[Comparison] = []
        self._stream = stream
        self._settings = settings
        self._committer = committer
        self._record = record
        self._thorough = thorough

    def check(self, table: str, terms: FurtherTable | str) -> None:
        """Check one of the settings as the anchor is checked; a text is why it cannot be used."""
        name = f"table {table} of {self._stream}"
        if isinstance(terms, str):
            self.found.append(problem(name, terms))
            return
        settings, opened = self._settings, adapter(self._settings.format)
        try:
            options = {**settings.adapter_options(), "identifier": terms.identifier}
            own = opened.parse_table(terms.location, options)
            with contextlib.closing(opened.open_committer(own, settings.commit_user)) as committer:
                state = committer.inspect()
            maintenance = opened.open_maintenance(own)
            cleaning = check_cleaning(name, self._stream, settings, maintenance, self._record)
            compared = self._compare(name, table, terms)
        except LakeError as error:
            self.found.append(problem(name, f"{terms.identifier}: {error}"))
            return
        self.found += [
            fine(name, f"{terms.identifier} is in scope; {_describe(state, settings)}"),
            *([compared.finding] if compared else []),
            *_check_files(name, maintenance),
            *_prove(name, opened, own, state, maintenance, thorough=self._thorough),
            *cleaning,
        ]
        self.compared += [compared] if compared else []

    def _compare(self, name: str, table: str, terms: FurtherTable) -> Comparison | None:
        """Compare a table with the record; None if that knows nothing of it. Raises LakeUnavailable."""
        record, committer = self._record, self._committer
        known = record.state.tables.get(table) if record is not None else None
        if record is None or known is None or not isinstance(committer, GroupCommitter):
            return None
        named = f"{name}, history"
        if terms.identity != known.terms.identity:
            other = f"{terms.identifier} is the table {terms.identity}, not {known.terms.identity}"
            found: Problem | LakeUnavailable | None = Problem(
                code=Code.TABLE_UNUSABLE, table=table, detail=other
            )
        else:
            found = committer.trouble({table: known}).get(table)
        if isinstance(found, LakeUnavailable):
            raise found
        if found is None:
            return Comparison(fine(named, f"agrees with the record, up to decision {known.newest.decision}"))
        cause = found.cause
        ahead = cause is not None and (cause.number or 0) > (cause.other or 0)
        made = record.state.unresolved
        if ahead and cause is not None and made is not None and cause.number == made.id:
            return Comparison(fine(named, f"has decision {made.id}, whose outcome is not recorded yet"))
        return Comparison(problem(named, format_problem(found, self._stream)), ahead)


def _check_files(name: str, maintenance: TableMaintenance) -> list[Finding]:
    """Open what a reader of the newest snapshot opens. No commit looks at the data files of former ones."""
    if not isinstance(maintenance, OpensNewest):
        return []
    named = f"{name}, files"
    try:
        opened = maintenance.open_newest()
    except LakeUnavailable as error:
        return [problem(named, str(error))]
    if opened.problems:
        return [problem(named, format_problems(opened))]
    return [fine(named, f"the newest snapshot can be read: its metadata, and {opened.files} of its files")]


def _check_names(stream: str, settings: StreamSettings) -> list[Finding]:
    # "unchecked" is a deliberate setting, so it is a warning and not a problem.
    if settings.file_names == "checked":
        return []
    text = (
        "the names of data files are not compared with the attempts that wrote them (file_names = "
        '"unchecked"): a file that two checkpoints name is committed twice. If the writers are the hooks of '
        f'this release, set streams.{stream}.file_names = "checked" for all coordinators'
    )
    return [warning(f"table of {stream}, file names", text)]


def _describe(state: TableState, settings: StreamSettings) -> str:
    # With its identity, as `sluicegate stream resume --head` takes it.
    head = f"snapshot {state.head.id}:{state.head.identity}" if state.head else "no snapshot yet"
    if state.newest_decision is None:
        return f"{head}, none by {settings.commit_user}"
    return f"{head}, last commit by {settings.commit_user}: {state.newest_decision}"


def _prove(
    name: str,
    opened: Adapter,
    table: TableRef,
    state: TableState,
    maintenance: TableMaintenance,
    *,
    thorough: bool,
) -> list[Finding]:
    """Try what a commit does in the storage; if it is thorough, describe what the table allows, too."""
    return [
        *prove_storage(name, maintenance, RACES if thorough else 0),
        *(describe_table(name, opened, table, state, maintenance) if thorough else []),
    ]
