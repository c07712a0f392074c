"""Lineage: each committed cut as a run in the form of OpenLineage."""
