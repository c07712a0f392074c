"""The thin shell around the core: Kafka, tables, the state store, and one event loop."""
