"""Checks of `sluicegate check` that use Kafka."""

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupAuthorizationFailedError, KafkaError
from aiokafka.protocol.group import HeartbeatRequest

from sluicegate.cli.errors import kafka_away
from sluicegate.cli.finding import Finding, fine, problem, warning
from sluicegate.cli.kafka import admin_client, count_members, security
from sluicegate.coordinator.settings.model import Settings, SettingsError
from sluicegate.kafka.clients import patiently
from sluicegate.kafka.internals import send_admin_request
from sluicegate.kafka.permissions import Client, format_grants, lacking
from sluicegate.kafka.topics import TopicError, TopicProblem, TopicSpec, ensure_topics, verify_topics


async def check_kafka(settings: Settings, *, create: bool) -> list[Finding]:
    """Check brokers, topics and group. Without brokers, report only that problem."""
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
    reached = f"{len(brokers)} broker{'s' if len(brokers) != 1 else ''} at {settings.kafka.bootstrap_servers}"
    return [
        fine("kafka", reached),
        *await _check_topics(settings, create=create),
        *group,
        *await _check_grants(settings),
    ]


async def _check_topics(settings: Settings, *, create: bool) -> list[Finding]:
    specs = settings.kafka.topic_specs()
    where = (settings.kafka.bootstrap_servers, specs, security(settings))
    try:
        created = await ensure_topics(*where) if create else []
        problems = await verify_topics(*where)
    except TopicError as error:
        return [problem("topics", str(error))]
    findings: list[Finding] = []
    for spec in specs:
        wrong = [each for each in problems if each.topic == spec.name]
        for each in wrong:
            find = warning if each.warning else problem
            findings.append(find(_name(spec), f"{each.wrong}. {_remedy(each)}"))
        if not wrong:
            findings.append(fine(_name(spec), "created" if spec.name in created else "exists, settings fit"))
    return findings


def _remedy(wrong: TopicProblem) -> str:
    """Return the remedy of a topic problem. For a missing topic, name the shorter sluicegate command."""
    return "Create it: sluicegate topics create" if wrong.missing else wrong.remedy


def _name(spec: TopicSpec) -> str:
    return f"topic {spec.name}"


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


async def _check_grants(settings: Settings) -> list[Finding]:
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
