"""Servers of one machine: Kafka and Valkey as child processes, `sluicegate up`, and the demo."""
