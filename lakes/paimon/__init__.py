"""Adapter for Apache Paimon: append tables on a local file system."""
