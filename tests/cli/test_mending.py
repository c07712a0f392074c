"""What the commands of recovery say when there is nothing to do, or nothing can be done."""

import pytest

from tests.cli.deployment import Deployment, as_json

pytestmark = pytest.mark.kafka

VERIFY = ("replay", "--stream", "flights", "--verify")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("replay", "--stream", "flights"), "say one of --verify, --commit-missing and --into, or --dry-run"),
        ((*VERIFY, "--commit-missing"), "say one of"),
        ((*VERIFY, "--from", "yesterday"), "'yesterday' is no place in a log; say earliest"),
        ((*VERIFY, "--from", "latest"), "leave nothing to replay"),
        (
            ("replay", "--stream", "flights", "--into", "/x", "--from", "offset:1"),
            "goes with --from earliest",
        ),
        (("replay", "--stream", "flihgts", "--verify"), "configured are: flights"),
        (("orphans", "--stream", "flihgts"), "configured are: flights"),
        (("orphans", "--stream", "flights", "--grace", "soon"), "must be a duration"),
        (("dead-letters", "show"), "'--offset'"),
        (("takeover", "--stream", "flihgts"), "configured are: flights"),
    ],
)
def test_what_makes_no_sense_is_refused(nobody: Deployment, arguments: tuple[str, ...], says: str) -> None:
    result = nobody.run(*arguments)
    assert result.exit_code == 2
    assert says in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        VERIFY,
        ("orphans", "--stream", "flights"),
        ("dead-letters", "list"),
        ("takeover", "--stream", "flights"),
    ],
)
def test_kafka_that_is_away_and_missing_topics_are_told(
    nobody: Deployment, deployment: Deployment, arguments: tuple[str, ...]
) -> None:
    away = nobody.run(*arguments)
    assert (away.exit_code, "does not answer" in away.stderr) == (2, True), away.output
    missing = deployment.run(*arguments)
    assert (missing.exit_code, "sluicegate topics create" in missing.stderr) == (2, True), missing.output


def test_a_stream_that_nobody_has_opened_has_nothing_wrong(deployment: Deployment) -> None:
    deployment.create_topics()
    result = deployment.run(*VERIFY)
    assert result.exit_code == 0, result.output
    assert "no decision in this range" in result.stdout
    assert as_json(deployment.run("orphans", "--stream", "flights", "--json"))["files"] == []
    assert deployment.run("dead-letters", "list").stdout == "no dead letters\n"
    mended = deployment.run("replay", "--stream", "flights", "--commit-missing")
    assert (mended.exit_code, "nothing is missing" in mended.stdout) == (0, True), mended.output
    takeover = deployment.run("takeover", "--stream", "flights")
    assert (takeover.exit_code, "no job has opened it yet" in takeover.stderr) == (2, True)
