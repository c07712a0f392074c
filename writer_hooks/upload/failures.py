"""Failures of an uploader."""


class Lost(Exception):
    """Files of an entry can never be uploaded. The text is the reason."""


def format_way_back(stream: str, region: str) -> str:
    """Return the remedy for a region whose files are lost."""
    return (
        f"set it back with: sluicegate region reset --stream {stream} --region {region} "
        "--checkpoint-location LOCATION (a query of Spark), or start its driver again (plain Python)"
    )
