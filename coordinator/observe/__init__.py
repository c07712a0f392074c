"""Logs, metrics, status and HTTP endpoints of the service."""
