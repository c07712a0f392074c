"""One adapter per table format: the writer's half and the committer's half side by side."""

from sluicegate.lakes.port import Adapter, Committer, FileWriter, LakeError
from sluicegate.lakes.registry import adapter

__all__ = ["Adapter", "Committer", "FileWriter", "LakeError", "adapter"]
