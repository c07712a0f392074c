"""Access to Kafka for the service, the writer hooks and the commands: clients, topics, fetching."""
