"""The coordinator: its core, and the service that runs it."""
