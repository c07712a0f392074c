"""Coordinator: its core, and the service that runs it."""
