"""Load all that the image brings: formats, listeners, storages, catalogs, traces. Containers run this."""

from importlib import import_module
from importlib.metadata import entry_points

LIBRARIES = (
    "botocore.session",  # Glue
    "obstore.store",
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "psycopg",
    "psycopg_binary",  # with libpq
    "sqlalchemy.dialects.postgresql.psycopg",
)

if __name__ == "__main__":
    loaded = [
        each.load() for group in ("lakes", "listeners") for each in entry_points(group=f"sluicegate.{group}")
    ]
    loaded += [import_module(each) for each in LIBRARIES]
    print(len(loaded), "loaded")
