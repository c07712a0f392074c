"""Adapter for Apache Paimon: append tables on local file systems and in object stores."""
