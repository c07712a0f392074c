"""One partition and its streams: applies records, and runs effects of the core."""
