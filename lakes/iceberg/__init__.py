"""Adapter for append tables of Apache Iceberg, format versions 2 and 3."""
