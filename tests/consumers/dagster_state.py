"""Prints the cursor of the sensor and the runs of an instance of Dagster, as JSON; runs beside Dagster."""

import json

from dagster import DagsterInstance

CURSOR = "complete_months"

with DagsterInstance.get() as instance:
    states = [each for each in instance.all_instigator_state() if each.instigator_name == CURSOR]
    cursors = [each.instigator_data.cursor for each in states if each.instigator_data is not None]
    runs = [
        {
            "key": each.tags.get("dagster/run_key"),
            "month": each.tags.get("dagster/partition"),
            "status": each.status.value,
            "config": each.run_config["ops"]["monthly_report"]["config"],
        }
        for each in instance.get_runs()
    ]
    print(json.dumps({"cursor": cursors[0] if cursors else None, "runs": runs}))
