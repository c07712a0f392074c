"""A coordinator behind a token and TLS: commands ask it, and SIGHUP renews both."""

from pathlib import Path

import pytest

from tests.coordinator.telemetry.test_http import FIRST, SECOND, bearer, get, token_files
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.orders import invoke
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
