"""Marks of partitions in which no more rows are expected."""
