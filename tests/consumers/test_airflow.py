"""The example for Airflow, in a real Airflow: each mark is one event, and one task, also through a kill."""

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from tests.consumers.airflow_processes import EXAMPLE, OTHERS, Airflow
from tests.consumers.environments import environment_of
from tests.consumers.marks import commit, mark, publish
from tests.integration.job import make_topics
from tests.integration.waiting import until
from tests.packaging.environments import Environment

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

_PARSE = """
import sys
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(sys.argv[1])
print("errors", bag.import_errors)
for dag in bag.dags.values():
    print(dag.dag_id, sorted(dag.task_dict), dag.timetable.asset_condition)
"""
_QUEUE = """
import asyncio, json, sys
import airflow.settings
from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger

airflow.settings.prepare_syspath_for_config_and_plugins()
trigger = MessageQueueTrigger(
    scheme="kafka", topics=[sys.argv[1]], apply_function="sluicegate_feed.announcement",
    apply_function_kwargs={"stream": "flights"}, poll_timeout=1, poll_interval=0,
)

async def first():
    async for event in trigger.run():
        return event.payload

print(json.dumps(asyncio.run(first())))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Give an environment with Airflow."""
    return environment_of("airflow", tmp_path_factory.mktemp("airflow") / "environment")


def _run(command: list[str | Path], variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


async def test_each_mark_runs_one_task_through_a_kill_of_the_triggerer(
    environment: Environment, kafka_bootstrap: str, unique: str, tmp_path: Path
) -> None:
    topic = (await make_topics(kafka_bootstrap, unique)).commits
    # A repetition has the same id. Other streams and commits are no marks of this one.
    await publish(
        kafka_bootstrap, topic, commit(1), mark(1, 1), mark(1, 1), mark(2, 1, stream="others"), mark(3, 2)
    )
    with Airflow(environment, tmp_path, kafka_bootstrap, topic) as airflow:
        server = airflow.processes["api-server"]
        await until(airflow.answers, by=server, log=airflow.log("api-server"))
        for part in OTHERS:
            airflow.start(part)
        await until(
            airflow.reported, lambda ids: ids == ["mark-1", "mark-3"], by=airflow.processes["triggerer"]
        )
        airflow.kill("triggerer")
        await publish(kafka_bootstrap, topic, mark(1, 1), mark(4, 1, late=True))
        airflow.start("triggerer")
        await until(airflow.reported, lambda ids: "mark-4" in ids, by=airflow.processes["triggerer"])
        await until(airflow.running, lambda count: count == 0)
        assert airflow.reported() == ["mark-1", "mark-3", "mark-4"], "each mark once"
        assert airflow.failed() == []
        found = airflow.events()
    ids = [each["id"] for each in found]
    assert set(ids) == {"mark-1", "mark-3", "mark-4"}
    assert ids.count("mark-1") >= 2, "Airflow has the repetitions, and the DAG leaves them out"
    last = found[ids.index("mark-4")]
    assert (last["partition"], last["snapshot"], last["late"]) == ("month=01", 4, True)


def test_the_dag_is_parsed_without_errors(environment: Environment, tmp_path: Path) -> None:
    airflow = Airflow(environment, tmp_path, "127.0.0.1:9", "sluicegate.commits")
    airflow.call("db", "migrate")
    command: list[str | Path] = [environment.python, "-c", _PARSE, EXAMPLE / "dags"]
    done = _run(command, airflow.variables)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "errors {}" in done.stdout
    assert "sluicegate_months ['new_months', 'remember', 'report']" in done.stdout
    assert "sluicegate_feed.CommitsTrigger stream=flights" in done.stdout


async def test_the_queue_trigger_of_airflow_fires_too(
    environment: Environment, kafka_bootstrap: str, unique: str, tmp_path: Path
) -> None:
    topic = (await make_topics(kafka_bootstrap, unique)).commits
    await publish(kafka_bootstrap, topic, mark(2, 1, stream="others"), commit(1), mark(1, 1))
    airflow = Airflow(environment, tmp_path, kafka_bootstrap, topic)
    command: list[str | Path] = [environment.python, "-c", _QUEUE, topic]
    done = await asyncio.to_thread(_run, command, airflow.variables)
    assert done.returncode == 0, done.stderr[-2000:]
    event = json.loads(done.stdout.splitlines()[-1])
    assert (event["id"], event["partition"], event["snapshot"]) == ("mark-1", "month=01", 1)
