"""The process of the service: startup, connections, threads, partition assignments, shutdown."""
