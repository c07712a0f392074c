"""A coordinator behind a token and TLS: commands ask it, and SIGHUP renews both."""

import json
from pathlib import Path

import pytest

from tests.coordinator.telemetry.test_access import FIRST, SECOND, bearer, get, token_files
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.orders import invoke
from tests.integration.test_reload import coordinator
from tests.integration.waiting import until
from tests.tls import Certificates

pytestmark = pytest.mark.kafka


@pytest.mark.seam
async def test_commands_ask_a_coordinator_with_their_token(place: Place, certificates: Certificates) -> None:
    (file,) = token_files(place.root, FIRST)
    http = {
        "port": 0,
        "token_files": [file],
        "certificate_file": certificates.server,
        "key_file": certificates.server_key,
    }
    async with running(place.settings(http=http)) as service, place.job() as job:
        await job.register()
        variables = {
            "HTTP__PORT": str(service.http_port),
            "HTTP__CA_FILE": str(certificates.ca),
            "HTTP__TOKEN_FILES": str(file),
        }
        asked = await invoke(place, "status", **variables)
        assert (asked.exit_code, asked.stderr) == (0, ""), asked.output
        wrong = place.root / "wrong"
        wrong.write_text(SECOND)
        refused = await invoke(place, "status", **{**variables, "HTTP__TOKEN_FILES": str(wrong)})
        assert "Give it one of the coordinator's: http.token_files" in " ".join(refused.stderr.split())
        alien = await invoke(place, "status", **{**variables, "HTTP__CA_FILE": str(certificates.client)})
        assert "Set http.ca_file and http.host to what its certificate has" in " ".join(alien.stderr.split())
        url = f"https://127.0.0.1:{service.http_port}/status"
        assert (await get(url, bearer(SECOND), certificates.ca))[0] == 401
        token_files(place.root, SECOND)
        service.reload()
        await until(lambda: _is_taken(url, certificates.ca))
        assert (await get(url, bearer(FIRST), certificates.ca))[0] == 401


async def _is_taken(url: str, ca: Path) -> bool:
    return (await get(url, bearer(SECOND), ca))[0] == 200


async def test_a_token_is_changed_as_advised_without_a_restart(place: Place) -> None:
    """Add the new file and send SIGHUP; then remove the old one and send SIGHUP."""
    old, new = token_files(place.root, FIRST, SECOND)

    def http(*files: Path) -> str:
        return f"token_files = {json.dumps([str(each) for each in files])}"

    async with coordinator(place, {"flights": ""}, http(old)) as service:
        url = f"http://127.0.0.1:{(await service.told('listening'))['port']}/status"

        async def taken() -> list[bool]:
            return [(await get(url, bearer(token)))[0] == 200 for token in (FIRST, SECOND)]

        assert await taken() == [True, False]
        for files, wanted in (((old, new), [True, True]), ((new,), [False, True])):
            service.write({"flights": ""}, http=http(*files))
            service.hup()
            await until(taken, wanted.__eq__)
        # A file that cannot be read changes nothing.
        service.write({"flights": ""}, http=http(new, place.root / "missing"))
        service.hup()
        told = await service.told("tokens and certificate not reloaded, those before stay in force")
        assert "missing" in told["problem"]
        assert await taken() == [False, True]
        # Two tokens in one file are none: with both refused, nobody could ask any more.
        new.write_text(f"{SECOND}\n{FIRST}\n")
        service.write({"flights": ""}, http=http(new))
        service.hup()
        told = await service.told("tokens and certificate not reloaded, those before stay in force", 2)
        assert "write one token per file; list several files" in told["problem"]
        assert await taken() == [False, True]
        assert service.events("settings that only a restart takes over") == []
