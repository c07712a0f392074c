"""Tags of snapshots by periods of the watermark, and of savepoints."""
