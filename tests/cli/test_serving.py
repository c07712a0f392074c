"""A stream without a state record is served by nobody, whatever the address of its coordinators."""

import pytest

from sluicegate.cli import coordinators
from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.core.state_record import StateRecord, encode_record
from tests.cli.acting import coordinator_in_the_group
from tests.cli.deployment import Deployment, as_json, findings

pytestmark = [pytest.mark.kafka, pytest.mark.seam]


def test_coordinators_that_never_served_the_stream(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinators, "PATIENCE", 0.0)
    deployment.env["SLUICEGATE_HTTP__PORT"] = "0"
    deployment.create_topics()
    group = deployment.settings.kafka.group_id
    text = f"coordinators run in group {group}, but none of them serves stream flights. Give all members"
    assert "stream flights" not in findings(deployment.run("check")), "nobody runs, which is another warning"
    with coordinator_in_the_group(deployment):
        result = deployment.run("check")
        verdict, detail = findings(result)["stream flights"]
        assert (result.exit_code, verdict, text in detail) == (0, "WARNING", True)
        (shown,) = as_json(deployment.run("status", "--json"))["streams"]
        assert shown["unserved"] == detail
        first, second = deployment.run("status").stdout.splitlines()
        assert first.startswith("flights  no coordinator has served it yet  partition ")
        assert second == f"  NOT SERVED: {detail}"
        record = StateRecord(stream="flights", applied=-1, low_water=0, state=LogState())
        deployment.write_state((b"flights", encode_record(record)))
        assert "stream flights" not in findings(deployment.run("check"))
        assert "NOT SERVED" not in deployment.run("status").stdout
