"""`sluicegate audit`: each order leaves an entry with its sender, its reason and its effect."""

import json
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, get_args

import click
import pytest

from sluicegate.cli import main
from sluicegate.cli.audit import COMMANDS
from sluicegate.cli.audit import NOTES as NOTES_SHOWN
from sluicegate.events.encoding import Message, encode_event
from sluicegate.events.envelope import Envelope, EventType, partition_of
from sluicegate.events.models import Command, StreamCommand
from sluicegate.events.orders import ORDER, Order, make_note, order_header
from tests.cli.acting import two_regions
from tests.cli.deployment import PARTITIONS, Deployment, as_json
from tests.cli.history import STREAM
from tests.cli.preparing import (
    OF_STREAM,
    Prepare,
    empty,
    fresh,
    produce,
    with_damaged_record,
    with_decision,
    with_forgotten,
    with_letter,
    with_location,
    with_lost_topics,
    with_newer,
    with_provisional,
    with_savepoint,
)
from tests.cli.test_command_tree import tree

pytestmark = pytest.mark.seam

SENDER: Final = ("--by", "alice", "--reason", "a test, café")

ORDERS: Final[dict[str, tuple[Prepare, int]]] = {
    "assignment close": (fresh(), 0),
    "assignment withdraw": (with_provisional, 0),
    "commit revert": (with_decision, 1),
    "dead-letters drop": (with_letter, 0),
    "dead-letters retry": (with_letter, 0),
    "orphans delete": (empty(), 0),
    "region remove": (fresh("--region", "EWR"), 0),
    "region reset": (with_location, 0),
    "replay rebuild": (empty("--into", "{folder}/again"), 0),
    "replay repair": (empty(), 0),
    "stream adopt": (with_lost_topics, 0),
    "stream cancel": (with_savepoint, 0),
    "stream drain": (fresh("--name", "d1", "--timeout", "10ms"), 1),
    "stream forget": (with_forgotten, 0),
    "stream pause": (fresh(), 0),
    "stream recover": (with_damaged_record, 0),
    "stream resume": (fresh(), 0),
    "stream skip": (with_newer, 0),
    "stream savepoint": (fresh("--name", "s1", "--timeout", "10ms"), 1),
}
"""Orders, with what each one needs, and its exit status where no coordinator runs."""
NOTES: Final = {
    *("dead-letters drop", "dead-letters retry", "orphans delete", "replay rebuild", "replay repair"),
    *("stream adopt", "stream forget", "stream recover"),
}
"""Orders whose work is outside of the log."""
NO_ORDERS: Final = {
    *("audit", "check", "completion", "conformance", "demo", "history", "init", "run", "servers", "simulate"),
    *("status", "up", "wait", "dead-letters list", "dead-letters show", "orphans list", "replay verify"),
    *("topics create", "uploads discard", "uploads drain", "uploads list"),
}
"""Commands that change nothing of a stream, that set a deployment up, or that are about one machine."""


def append(deployment: Deployment, message: Message) -> None:
    """Append to the log of the stream, as any client may."""
    topic = deployment.settings.kafka.topic_names().events
    produce(deployment, topic, *message, partition=partition_of(STREAM, PARTITIONS))


def command(body: StreamCommand, *headers: tuple[str, bytes]) -> Message:
    made = encode_event(Envelope("forged", EventType.STREAM_COMMAND, STREAM), body, 1)
    return made._replace(headers=[*made.headers, *headers])


def audited(deployment: Deployment, *more: str, stream: str = STREAM, **env: str) -> list[dict[str, Any]]:
    result = deployment.run("audit", "--stream", stream, "--json", *more, **env)
    assert result.exit_code == 0, result.output
    orders: list[dict[str, Any]] = as_json(result)["orders"]
    return orders


def commands() -> dict[str, click.Command]:
    """Return every command by its words."""
    found: dict[str, click.Command] = {}
    for name, each in tree(main):
        if isinstance(each, click.Group):
            found |= {f"{name} {verb}": member for verb, member in tree(each)}
        else:
            found[name] = each
    return found


def test_every_command_is_an_order_or_none() -> None:
    found = commands()
    assert {*found} == {*ORDERS} | NO_ORDERS
    by = {name for name, each in found.items() if {"by", "reason"} <= {option.name for option in each.params}}
    assert by == {*ORDERS}


@pytest.mark.kafka
@pytest.mark.parametrize("words", ORDERS)
def test_every_order_leaves_an_entry(words: str, deployment: Deployment, tmp_path: Path) -> None:
    prepare, status = ORDERS[words]
    arguments = prepare(deployment, tmp_path)
    result = deployment.run(*words.split(), *arguments, *SENDER)
    assert result.exit_code == status, result.output
    stream = "trains" if words == "stream forget" else STREAM
    found = [each for each in audited(deployment, stream=stream) if each["claim"] is not None]
    (claim,) = {json.dumps(each["claim"]) for each in found if each["claim"]["order"] == words}
    assert json.loads(claim).items() >= {"by": "alice", "reason": "a test, café"}.items()
    assert json.loads(claim)["host"]
    effects = {each["effect"] for each in found}
    assert effects == ({"noted"} if words in NOTES else {"accepted"})
    shown = deployment.run("audit", "--stream", stream)
    assert shown.exit_code == 0, shown.output
    assert any(
        f"  {words}" in line and " by alice on " in line and '"a test, café"' in line
        for line in shown.stdout.splitlines()
    ), shown.output
    assert "not signed: the sender is only a claim" in shown.stdout


HOSTILE: Final = {
    "escape": "\x1b[2Jgone",
    "line": "one\ntwo",
    "return": "one\rtwo",
    "null": "one\x00two",
    "bidirectional": "one\u202etwo",
    "c1": "one\x9b2J",
    "long": "x" * (1 << 20),
}


@pytest.mark.parametrize("option", ["--by", "--reason"])
@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("words", ORDERS)
def test_hostile_text_is_refused_before_anything_is_done(
    words: str, kind: str, option: str, nobody: Deployment
) -> None:
    result = nobody.run(*words.split(), option, HOSTILE[kind])
    assert result.exit_code == 2
    assert option in result.stderr
    assert len(result.output) < 2_000
    assert not any(each in result.output for each in "\x1b\x00\r\u202e\x9b")
    assert "Kafka" not in result.output


def test_a_hostile_variable_is_refused_until_it_is_one_line_of_text(nobody: Deployment) -> None:
    result = nobody.run("stream", "pause", *OF_STREAM, SLUICEGATE_BY="\x1b[2J")
    assert result.exit_code == 2
    assert "Give one line of text" in " ".join(result.stderr.split())
    assert "\x1b" not in result.output
    taken = nobody.run("stream", "pause", *OF_STREAM, SLUICEGATE_BY="one line of text")
    assert "Kafka" in taken.stderr


@pytest.mark.kafka
def test_what_any_client_may_append_is_escaped(deployment: Deployment) -> None:
    two_regions(deployment).send()
    claim = Order(order="stream pause", by="a", host="h", at=1, release="1").model_dump()
    for text in HOSTILE.values():
        raw = json.dumps(claim | {"by": text}).encode()[: 1 << 19]
        append(deployment, command(StreamCommand(command="pause"), (ORDER, raw)))
    append(deployment, command(StreamCommand(command="remove", region="EWR", number=9)))
    made = command(StreamCommand(command="pause"))
    append(deployment, made._replace(value=b'{"command": "\\u001b[2J"}'))
    found = audited(deployment)
    assert [each["claim_malformed"] for each in found] == [True] * len(HOSTILE) + [False] * 2
    assert all(each["claim"] is None for each in found)
    assert [each["code"] for each in found[-2:]] == ["not-applicable", "malformed-body"]
    shown = deployment.run("audit", *OF_STREAM)
    assert len(shown.stdout.splitlines()) == len(HOSTILE) + 2
    assert all(line.isprintable() for line in shown.stdout.splitlines())
    assert shown.stdout.count("by a sender whose claim is malformed") == len(HOSTILE)
    assert "remove (region EWR, number 9) by an unnamed sender: refused: " in shown.stdout


@pytest.mark.kafka
def test_an_order_of_an_older_release_is_shown(deployment: Deployment) -> None:
    history = two_regions(deployment)
    history.append(EventType.STREAM_COMMAND, StreamCommand(command="pause"))
    history.send()
    (entry,) = audited(deployment)
    assert (entry["claim"], entry["claim_malformed"], entry["effect"]) == (None, False, "accepted")


@pytest.mark.kafka
def test_later_outcomes_are_part_of_an_entry(deployment: Deployment) -> None:
    history = two_regions(deployment)
    for name in ("s1", "s2"):
        history.append(EventType.STREAM_COMMAND, StreamCommand(command="savepoint", name=name))
    history.append(EventType.STREAM_COMMAND, StreamCommand(command="cancel", name="s2"))
    history.decide()
    history.commit()
    for region in ("EWR", "JFK"):
        history.complete(region, 2)
    history.decide()
    history.append(EventType.STREAM_COMMAND, StreamCommand(command="revert", decision=3, region="EWR"))
    history.revert()
    history.send()
    found = [
        (each["command"]["command"], each["outcome"], each["outcome_decision"])
        for each in audited(deployment)
    ]
    assert found == [
        ("savepoint", "reached", 2),
        ("savepoint", "cancelled", None),
        ("cancel", None, None),
        ("revert", "reverted", 3),
    ]
    text = deployment.run("audit", *OF_STREAM).stdout
    for part in ("reached with decision 2", "cancelled later", "decision 3 is reverted"):
        assert part in text


@pytest.mark.kafka
def test_the_newest_orders_are_chosen(deployment: Deployment) -> None:
    two_regions(deployment).send()
    for by in ("a", "b", "c"):
        assert deployment.run("stream", "pause", *OF_STREAM, SLUICEGATE_BY=by).exit_code == 0
    assert [each["claim"]["by"] for each in audited(deployment, "--last", "2")] == ["b", "c"]
    assert len(audited(deployment, "--since", "1h")) == 3
    assert audited(deployment, "--since", "2999-01-01") == []
    times = [each["time"] for each in audited(deployment)]
    third = datetime.fromtimestamp(times[2] / 1000, UTC).isoformat()
    assert len(audited(deployment, "--since", third)) == times.count(times[2])
    wrong = deployment.run("audit", *OF_STREAM, "--since", "yesterday")
    assert (
        wrong.exit_code,
        "neither a duration such as 7d nor a time" in " ".join(wrong.stderr.split()),
    ) == (2, True)


@pytest.mark.kafka
def test_effects_are_unknown_where_the_log_cannot_be_folded(deployment: Deployment) -> None:
    two_regions(deployment).send()
    assert deployment.run("stream", "pause", *OF_STREAM).exit_code == 0
    deployment.write_state((STREAM.encode(), b"\x00no record"))
    shown = deployment.run("audit", *OF_STREAM)
    assert shown.exit_code == 0
    assert "effect not known" in shown.stdout
    assert "the effects are not known: " in shown.stderr


@pytest.mark.kafka
def test_a_signed_order_is_told_from_a_forged_one(deployment: Deployment, tmp_path: Path) -> None:
    key = tmp_path / "k1.key"
    key.write_text("11" * 32 + "\n")
    signing = {
        "SLUICEGATE_KAFKA__SIGNING__MODE": "accepted",
        "SLUICEGATE_KAFKA__SIGNING__KEY_FILES": str(key),
    }
    two_regions(deployment).send()
    ordered = deployment.run("stream", "pause", *OF_STREAM, "--by", "alice", **signing)
    assert ordered.exit_code == 0, ordered.output
    claim = order_header(Order(order="stream resume", by="alice", host="h", at=1, release="1"))
    append(deployment, command(StreamCommand(command="resume"), claim))
    found = audited(deployment, **signing)
    assert [(each["claim"]["by"], each["signature"]) for each in found] == [
        ("alice", "valid"),
        ("alice", "unsigned"),
    ]
    since = {**signing, "SLUICEGATE_KAFKA__SIGNING__MODE": "required"}
    assert [(each["effect"], each["code"]) for each in audited(deployment, **since)] == [
        ("accepted", None),
        ("refused", "signature"),
    ]
    assert [each["signature"] for each in audited(deployment)] == ["unchecked", "unsigned"]
    # It is checked also if it is from before the time from which on one is needed.
    later = {**since, "SLUICEGATE_KAFKA__SIGNING__SINCE": "2100-01-01T00:00:00Z"}
    assert [each["signature"] for each in audited(deployment, **later)] == ["valid", "unsigned"]
    lines = deployment.run("audit", *OF_STREAM, **since).stdout
    assert "; signed" in lines
    assert ".;" not in lines


@pytest.mark.kafka
def test_the_order_is_what_its_body_does(deployment: Deployment) -> None:
    """A forged claim hides neither a pause, nor the end of a region, nor a note."""

    def claims(order: str) -> tuple[str, bytes]:
        return order_header(Order(order=order, by="mallory", host="h", at=1, release="1"))

    two_regions(deployment).send()
    append(deployment, command(StreamCommand(command="pause"), claims("stream resume")))
    append(deployment, command(StreamCommand(command="pause"), claims("stream adopt")))
    discard = StreamCommand(command="discard", region="EWR", number=0)
    append(deployment, command(discard, claims("stream resume")))
    append(deployment, command(make_note(), claims("stream pause")))
    shown = deployment.run("audit", *OF_STREAM).stdout.splitlines()
    told = [line.partition("  offset ")[2].partition("  ")[2] for line in shown]
    assert [each.partition(" by mallory")[0] for each in told] == [
        'stream pause, CLAIMED AS "stream resume",',
        'stream pause, CLAIMED AS "stream adopt",',
        'region remove --discard (region EWR, number 0), CLAIMED AS "stream resume",',
        'a note, CLAIMED AS "stream pause",',
    ]
    assert ["accepted" in each for each in told] == [True, True, True, False]


def test_every_kind_of_order_has_a_name() -> None:
    assert {*COMMANDS} == {*get_args(Command)}
    assert {*NOTES_SHOWN} == NOTES | {"region reset"}
    assert {each for _, written in COMMANDS.values() for each in written} | {*NOTES_SHOWN} == {*ORDERS}


@pytest.mark.kafka
def test_older_orders_are_counted(deployment: Deployment) -> None:
    two_regions(deployment).send()
    append(deployment, command(StreamCommand(command="pause")))
    for _ in range(3):
        append(deployment, command(make_note()))
    shown = deployment.run("audit", *OF_STREAM, "--last", "2")
    assert len(shown.stdout.splitlines()) == 2
    assert "2 older orders are not shown. To see them: --last 4" in shown.stderr
    assert as_json(deployment.run("audit", *OF_STREAM, "--last", "2", "--json"))["older"] == 2
    every = deployment.run("audit", *OF_STREAM, "--last", "4")
    assert (len(every.stdout.splitlines()), every.stderr) == (4, "")


@pytest.mark.kafka
def test_a_refused_order_shows_what_it_tried(deployment: Deployment, tmp_path: Path) -> None:
    key = tmp_path / "k1.key"
    key.write_text("11" * 32 + "\n")
    two_regions(deployment).send()
    append(deployment, command(StreamCommand(command="discard", region="EWR", number=1)))
    append(deployment, command(make_note()))
    signing = {
        "SLUICEGATE_KAFKA__SIGNING__MODE": "required",
        "SLUICEGATE_KAFKA__SIGNING__KEY_FILES": str(key),
    }
    first, second = deployment.run("audit", *OF_STREAM, **signing).stdout.splitlines()
    assert "region remove --discard (region EWR, number 1) by an unnamed sender: refused: " in first
    assert "a note by an unnamed sender: refused: " in second
    found = audited(deployment, **signing)
    assert [(each["effect"], each["code"]) for each in found] == [("refused", "signature")] * 2
    assert found[0]["command"] == {"command": "discard", "region": "EWR", "number": 1}


@pytest.mark.kafka
def test_an_order_of_another_than_the_owner_names_the_owner(deployment: Deployment) -> None:
    two_regions(deployment).send()
    for by in ("lake-team", "alice"):
        assert deployment.run("stream", "pause", *OF_STREAM, "--by", by).exit_code == 0
    owned = {"SLUICEGATE_STREAMS__FLIGHTS__OWNER": "lake-team"}
    assert [each["by_owner"] for each in audited(deployment)] == [None, None]
    assert [each["by_owner"] for each in audited(deployment, **owned)] == [True, False]
    first, second = deployment.run("audit", *OF_STREAM, **owned).stdout.splitlines()
    assert "the owner is" not in first
    assert "(the owner is lake-team)" in second
    assert "owner lake-team" in deployment.run("status", **owned).stdout
    assert as_json(deployment.run("status", "--json", **owned))["streams"][0]["owner"] == "lake-team"
    assert "owner" not in deployment.run("status").stdout


def test_the_user_of_the_system_is_the_sender_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    from sluicegate.cli.ordered_by import current_order

    monkeypatch.setattr("os.getuid", lambda: 4_000_000_001)
    assert current_order().by == "uid 4000000001"
    monkeypatch.setattr("os.getuid", lambda: 0)
    monkeypatch.setenv("SUDO_USER", "bob\x1b")
    assert current_order().by.endswith("(sudo by bob)")
    assert shlex.split(current_order().order) == ["unknown"]


@pytest.mark.kafka
def test_a_name_that_nobody_knows_is_refused(deployment: Deployment) -> None:
    two_regions(deployment).send()
    refused = deployment.run("audit", "--stream", "fligths")
    assert refused.exit_code == 2, refused.output
    assert "no stream fligths is known" in " ".join(refused.stderr.split())
    assert "Correct the name; the settings have: flights" in " ".join(refused.stderr.split())
    assert deployment.run("audit", "--stream", "flights").exit_code == 0
