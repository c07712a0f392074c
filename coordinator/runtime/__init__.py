"""The process of the service: startup, connections, threads, the assignments of partitions, the end."""
