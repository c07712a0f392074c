"""Orders with a key that the coordinators do not take are refused before anything is written."""

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sluicegate.events.encoding import encode_event
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import StreamCommand
from sluicegate.events.signing import SIGNATURE
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import read_ids
from tests.integration.letters import codes, put_raw
from tests.integration.orders import invoke
from tests.integration.waiting import until
from tests.security.test_forgery import KEYS, STREAM, as_variables, key_files, log_of, replica_of, signing

pytestmark = pytest.mark.kafka

PAUSE = StreamCommand(command="pause")
ORDERS = (
    ("stream", "pause", *STREAM),
    ("stream", "savepoint", *STREAM, "--name", "s1"),
    ("region", "remove", *STREAM, "--region", "r1"),
    ("orphans", "delete", *STREAM),
)


def renamed(folder: Path, name: str, content: str) -> dict[str, str]:
    """Settings of a command whose key has the id of another one."""
    (folder / "other").mkdir(exist_ok=True)
    file = folder / "other" / f"{name}.key"
    file.write_text(KEYS[content])
    return {"KAFKA__SIGNING__MODE": "required", "KAFKA__SIGNING__KEY_FILES": str(file)}


UNVERIFIED = "cannot be verified"
"""A log that the command cannot verify is a reason of its own for `orphans`: its files are not known."""


async def refused(place: Place, variables: dict[str, str], text: str, *, orphans: str | None = None) -> None:
    """Give each order; nothing of it reaches the log. `orphans`: its reason, if another."""
    before = len(await log_of(place))
    for order in ORDERS:
        result = await invoke(place, *order, **variables)
        assert result.exit_code == 2, (order, result.output)
        said = " ".join(result.stderr.split())
        assert ((order[0] == "orphans" and orphans) or text) in said, (order, result.stderr)
    assert len(await log_of(place)) == before
    assert not (await replica_of(place)).state.paused


async def test_an_order_needs_a_key_that_the_coordinators_take(place: Place) -> None:
    """The same holds while a coordinator runs and after its end, from its state record."""
    way_out = "list its file first in kafka.signing.key_files of this command"
    retired = {"k1": datetime.now(UTC)}
    settings = signing(place, "required", "k2", "k1", retired=retired)
    unknown = {**renamed(place.root, "k9", "k1")}
    other = {**renamed(place.root, "k2", "k1")}
    cases = (
        (unknown, "the key k9, which is unknown at", UNVERIFIED),
        (other, "the key k2, whose content is another one at", UNVERIFIED),
        (as_variables(place, "required", "k1", "k2"), "the key k1, which is retired at", None),
        (as_variables(place, "off"), "kafka.signing.mode and kafka.signing.key_files", None),
    )
    async with place.job() as job:
        async with running(settings):
            await job.register()
            await job.run_batch([1])
            await job.committed([1])
            await until(lambda: replica_of(place), lambda found: found.state.pending is None)
            for variables, text, orphans in cases:
                await refused(place, variables, text, orphans=orphans)
            result = await invoke(place, "stream", "pause", *STREAM, **unknown)
            assert f"They sign with k2: {way_out}" in " ".join(result.stderr.split())
        for variables, text, orphans in cases:
            await refused(place, variables, text, orphans=orphans)
        assert await codes(job) == []
        # The advised way out.
        async with running(settings):
            for named in ("pause", "resume"):
                command = ("stream", named, *STREAM)
                done = await invoke(place, *command, **as_variables(place, "required", "k2", "k1"))
                assert done.exit_code == 0, done.output


async def test_a_command_that_cannot_read_the_decisions_gives_no_order(place: Place) -> None:
    async with place.job() as job, running(signing(place, "required", "k2", "k1")):
        await job.register()
        await job.run_batch([1])
        await job.committed([1])
        lacks = as_variables(place, "required", "k1")
        for text in (
            "sign with the key k2, which it lacks",
            "Add their file of that key to kafka.signing.key_files of this command",
        ):
            await refused(place, lacks, text, orphans=UNVERIFIED)
        both = as_variables(place, "required", "k1", "k2")
        done = await invoke(place, "stream", "pause", *STREAM, **both)
        assert done.exit_code == 0, done.output


async def named_by_replays(place: Place, into: tuple[str, str], variables: dict[str, str], why: str) -> None:
    """The records of k1 are named; verify does not judge them, and nothing is written."""
    verified = await invoke(place, "replay", "verify", *STREAM, **variables)
    said = " ".join(verified.output.split())
    assert verified.exit_code == 1, said
    for text in ("records are signed with the key k1", why, "IS NOT VERIFIED"):
        assert text in said
    assert "not judged: snapshot 1 has the id of decision 1" in said
    assert "FOREIGN" not in said
    assert "DIFFERS" not in said
    for command in (("rebuild", *into), ("rebuild", *into, "--incomplete"), ("repair",)):
        refused = await invoke(place, "replay", command[0], *STREAM, *command[1:], **variables)
        assert refused.exit_code == 2, refused.output
        assert "cannot be verified: " in " ".join(refused.stderr.split())


async def test_a_replay_names_the_records_whose_key_it_lacks(place: Place) -> None:
    """The log has decisions of two keys, and a forgery; the command has the newer key alone."""
    both = as_variables(place, "required", "k2", "k1")
    async with place.job() as job:
        for number, keys in enumerate((("k1", "k2"), ("k2", "k1")), start=1):
            async with running(signing(place, "required", *keys)):
                if number == 1:
                    await job.register()
                await job.run_batch([number])
                await job.committed([*range(1, number + 1)])
                await until(lambda: replica_of(place), lambda found: found.state.pending is None)
        into = ("--into", str(place.root / "db.db" / "again"))
        lacking = as_variables(place, "required", "k2")
        await named_by_replays(place, into, lacking, "which is not in kafka.signing.key_files")
        other = {**both, "KAFKA__SIGNING__KEY_FILES": _with_another_k1(place)}
        await named_by_replays(place, into, other, "do not fit the content of that")
        assert not (place.root / "db.db" / "again").exists()
        # A job may name any key. The operator says that it is none.
        made = encode_event(
            Envelope("e9", EventType.STREAM_COMMAND, "flights"), PAUSE, time.time_ns() // 10**6
        )
        await put_raw(job, made.value, {**dict(made.headers), SIGNATURE: b"k9:" + b"0" * 64})
    verified = await invoke(place, "replay", "verify", *STREAM, **both)
    assert verified.exit_code == 1
    assert "1 record is signed with the key k9" in verified.stdout
    assert "they are forged: repeat with --forged k9" in verified.stdout
    for command in (("verify",), ("rebuild", *into)):
        given = (*STREAM, *command[1:], "--forged", "k9")
        done = await invoke(place, "replay", command[0], *given, **both)
        assert done.exit_code == 0, done.output
    assert read_ids(into[1]) == [1, 2]


def _with_another_k1(place: Place) -> str:
    (right,) = key_files(place.root, "k2")
    return f"{right},{renamed(place.root, 'k1', 'k2')['KAFKA__SIGNING__KEY_FILES']}"
