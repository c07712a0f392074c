"""Airflow: a DAG runs when Sluicegate has marked a month of a table as complete, for each mark once.

The stream `flights` has a listener of the type `mark-done` with the action `mark-event`. `sluicegate_feed.py`
is in the folder `plugins/` of Airflow; it explains the connection to Kafka.

Events that come together start one run, which Airflow gives the first of them alone. So a run takes all
events after those of earlier runs. A Variable of Airflow has their place, and the newest ids.
"""

import os
from datetime import timedelta
from typing import Any

from airflow.sdk import Asset, AssetWatcher, Variable, dag, task
from sluicegate_feed import MARKS, CommitsTrigger

STREAM = "flights"
TOPIC = os.environ.get("SLUICEGATE_COMMITS", "sluicegate.commits")
DONE = f"sluicegate_{STREAM}_months"
"""Name of the Variable."""
KEPT = 1_000
"""Ids that the Variable has at most."""

trigger = CommitsTrigger(stream=STREAM, kinds=MARKS, topics=[TOPIC])
months = Asset(
    f"sluicegate_{STREAM}_months", watchers=[AssetWatcher(name=f"sluicegate_{STREAM}", trigger=trigger)]
)


def done() -> dict[str, Any]:
    """Return the place of the newest event whose month is reported, and the newest ids."""
    found: dict[str, Any] = Variable.get(DONE, default={"event": 0, "ids": []}, deserialize_json=True)
    return found


# A run that fails leaves its months to the next one.
@dag(
    schedule=[months],
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 10, "retry_delay": timedelta(seconds=10)},
)
def sluicegate_months() -> None:
    """Report each complete month."""

    @task(inlets=[months])
    def new_months(inlet_events: Any = None) -> list[dict[str, Any]]:
        """Return the marks that no earlier run has reported, each once."""
        place = done()
        events = inlet_events[months]
        if "time" in place:
            events = events.after(place["time"])
        found: dict[str, dict[str, Any]] = {}
        for each in sorted(events, key=lambda event: event.id):
            mark = each.extra["payload"]
            if each.id > place["event"] and mark["id"] not in place["ids"]:
                found.setdefault(mark["id"], {**mark, "event": each.id, "time": each.timestamp.isoformat()})
        return [*found.values()]

    @task
    def report(month: dict[str, Any]) -> None:
        """Read the month from the table, at the snapshot of the mark or a later one. Here is your work."""
        print(f"{month['partition']} is complete in snapshot {month['snapshot']}, mark {month['id']}")

    @task
    def remember(reported: list[dict[str, Any]]) -> None:
        """Note the marks that are reported."""
        ids = [*done()["ids"], *(each["id"] for each in reported)][-KEPT:]
        last = reported[-1]
        Variable.set(DONE, {"event": last["event"], "time": last["time"], "ids": ids}, serialize_json=True)

    found = new_months()
    report.expand(month=found) >> remember(found)


sluicegate_months()
