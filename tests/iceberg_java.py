"""Iceberg's own Java library as processes: a REST catalog, and a judge that reads and changes tables."""

import http.client
import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, Self

from sluicegate.embedded.jars import fetched_jars
from sluicegate.embedded.java import find_java
from sluicegate.embedded.ports import LOOPBACK
from sluicegate.embedded.server import EmbeddedServer

VERSION: Final = "1.11.0"
_HADOOP: Final = "3.4.1"
_JETTY: Final = "12.1.5"
_SOURCES: Final = Path(__file__).parent / "iceberg_java"

_MODULE: Final = f"""\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="sluicegate" module="iceberg-for-tests"/>
  <dependencies>
    <dependency org="org.apache.iceberg" name="iceberg-core" rev="{VERSION}" conf="default">
      <artifact name="iceberg-core" type="jar" ext="jar"/>
      <artifact name="iceberg-core" type="jar" ext="jar" m:classifier="tests"/>
    </dependency>
    <dependency org="org.apache.iceberg" name="iceberg-data" rev="{VERSION}" conf="default"/>
    <dependency org="org.apache.iceberg" name="iceberg-parquet" rev="{VERSION}" conf="default"/>
    <dependency org="org.apache.iceberg" name="iceberg-open-api" rev="{VERSION}" transitive="false">
      <artifact name="iceberg-open-api" type="jar" ext="jar" m:classifier="test-fixtures"/>
    </dependency>
    <dependency org="org.apache.hadoop" name="hadoop-client-api" rev="{_HADOOP}" transitive="false"/>
    <dependency org="org.apache.hadoop" name="hadoop-client-runtime" rev="{_HADOOP}" transitive="false"/>
    <dependency org="org.xerial" name="sqlite-jdbc" rev="3.46.1.3" conf="default"/>
    <dependency org="org.eclipse.jetty" name="jetty-server" rev="{_JETTY}" conf="default"/>
    <dependency org="org.eclipse.jetty.compression" name="jetty-compression-server" rev="{_JETTY}"
      conf="default"/>
    <dependency org="org.eclipse.jetty.compression" name="jetty-compression-gzip" rev="{_JETTY}"
      conf="default"/>
    <dependency org="org.eclipse.jetty.ee10" name="jetty-ee10-servlet" rev="{_JETTY}" conf="default"/>
    <dependency org="commons-logging" name="commons-logging" rev="1.2" conf="default"/>
    <dependency org="org.slf4j" name="slf4j-simple" rev="2.0.17" conf="default"/>
  </dependencies>
</ivy-module>
"""


def iceberg_jars() -> list[Path]:
    """Return the class path. The first call of each user fetches about 100 MB."""
    main = f"iceberg-core-{VERSION}.jar"
    return fetched_jars(find_java(), "Apache Iceberg", "iceberg", VERSION, _MODULE, main)
