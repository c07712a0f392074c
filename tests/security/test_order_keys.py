"""Orders with a key that the coordinators do not take are refused before anything is written."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.letters import codes
from tests.integration.orders import invoke
from tests.integration.waiting import until
from tests.security.test_forgery import KEYS, STREAM, as_variables, log_of, replica_of, signing

pytestmark = pytest.mark.kafka

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
