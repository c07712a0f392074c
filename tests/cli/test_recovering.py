"""Output of the commands of recovery when there is nothing to do, or nothing can be done."""

import pytest

from tests.cli.deployment import Deployment, as_json

pytestmark = [pytest.mark.kafka, pytest.mark.seam]

STREAM = ("--stream", "flights")
VERIFY = ("replay", "verify", *STREAM)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("replay", "rebuild", *STREAM), "'--into'"),
        (("replay", "rebuild", *STREAM, "--into", "t", "--option", "name"), "the form NAME=VALUE"),
        ((*VERIFY, "--from", "yesterday"), "'yesterday' is no place in a log; use earliest"),
        ((*VERIFY, "--from", "time:soon"), "is no time; use milliseconds"),
        ((*VERIFY, "--from", "latest"), "leaves nothing to replay"),
        (("replay", "repair", *STREAM, "--to", "earliest"), "leaves nothing to replay"),
        (("replay", "verify", "--stream", "flihgts"), "configured are: flights"),
        (("orphans", "list", "--stream", "flihgts"), "configured are: flights"),
        (("orphans", "delete", *STREAM, "--grace", "soon"), "must be a duration"),
        (("dead-letters", "show"), "'--offset'"),
    ],
)
def test_arguments_without_a_meaning_are_refused(
    nobody: Deployment, arguments: tuple[str, ...], says: str
) -> None:
    result = nobody.run(*arguments)
    assert result.exit_code == 2
    assert says in result.stderr


@pytest.mark.parametrize("arguments", [VERIFY, ("orphans", "list", *STREAM), ("dead-letters", "list")])
def test_an_unreachable_kafka_and_missing_topics_are_reported(
    nobody: Deployment, deployment: Deployment, arguments: tuple[str, ...]
) -> None:
    away = nobody.run(*arguments)
    assert (away.exit_code, "does not answer" in away.stderr) == (2, True), away.output
    missing = deployment.run(*arguments)
    assert (missing.exit_code, "sluicegate topics create" in missing.stderr) == (2, True), missing.output


def test_a_stream_without_a_registration_needs_no_repair(deployment: Deployment) -> None:
    deployment.create_topics()
    result = deployment.run(*VERIFY)
    assert result.exit_code == 0, result.output
    assert "no decision in this range" in result.stdout
    assert as_json(deployment.run("orphans", "list", *STREAM, "--json"))["files"] == []
    assert deployment.run("dead-letters", "list").stdout == "no dead letters\n"
    repaired = deployment.run("replay", "repair", *STREAM)
    assert (repaired.exit_code, "nothing is missing" in repaired.stdout) == (0, True), repaired.output
