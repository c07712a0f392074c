"""Evaluates the sensor of the example once, with the cursor of the arguments; runs beside Dagster."""

import importlib.util
import json
import sys

from dagster import build_sensor_context

place, cursor = sys.argv[1:]
spec = importlib.util.spec_from_file_location("sluicegate_months", place)
assert spec is not None
assert spec.loader is not None
module = importlib.util.module_from_spec(spec)
sys.modules["sluicegate_months"] = module
spec.loader.exec_module(module)
result = module.complete_months(build_sensor_context(cursor=cursor or None, definitions=module.defs))
requests = [[each.run_key, each.partition_key] for each in result.run_requests]
print(json.dumps({"cursor": result.cursor, "requests": requests}))
