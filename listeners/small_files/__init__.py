"""Hints for compactors: partitions that have got small files by commits."""
