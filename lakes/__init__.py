"""Lake adapters, one for each table format, with a writer half and a committer half each."""

from sluicegate.lakes.port import Adapter, Committer, FileWriter, LakeError
from sluicegate.lakes.registry import adapter

__all__ = ["Adapter", "Committer", "FileWriter", "LakeError", "adapter"]
