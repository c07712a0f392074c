"""Nessie as a process: a REST catalog that changes several tables in one step. Its tables are in an S3 server."""

from pathlib import Path
from typing import Final

from sluicegate.cli.local.jars import Java, fetched_jars

VERSION: Final = "0.99.0"
_JAR: Final = f"nessie-quarkus-{VERSION}-runner.jar"
_MINIMUM_JAVA: Final = 21
_OPTIONS: Final = ("-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

_MODULE: Final = f"""\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="sluicegate" module="nessie-for-tests"/>
  <dependencies>
    <dependency org="org.projectnessie.nessie" name="nessie-quarkus" rev="{VERSION}" transitive="false">
      <artifact name="nessie-quarkus" type="jar" ext="jar" m:classifier="runner"/>
    </dependency>
  </dependencies>
</ivy-module>
"""


def fetched(java: Java) -> Path:
    """Return the program. The first call of each user fetches about 245 MB."""
    jars = fetched_jars(java, "Nessie", "nessie", VERSION, _MODULE, _JAR)
    return next(jar for jar in jars if jar.name == _JAR)
