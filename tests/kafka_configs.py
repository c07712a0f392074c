"""Kafka's own command for settings and quotas."""

import os
import shlex
import subprocess
from pathlib import Path

from sluicegate.embedded.jars import kafka_jars
from sluicegate.embedded.java import find_java
from tests.integration.waiting import exit_status


def kafka_configs(arguments: str, log: Path) -> str:
    """Run `kafka-configs.sh` with these arguments; return its output. Fails if the command does."""
    java = find_java()
    jars = os.pathsep.join(map(str, kafka_jars(java)))
    tool = [str(java.executable), "-Xmx128m", "-cp", jars, "kafka.admin.ConfigCommand"]
    with log.open("wb") as out:
        process = subprocess.Popen([*tool, *shlex.split(arguments)], stdout=out, stderr=out)
        assert exit_status(process, log) == 0, log.read_text()
    return log.read_text()
