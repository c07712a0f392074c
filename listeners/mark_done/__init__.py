"""Marks of partitions that are complete: policy, times of partitions, and actions."""
