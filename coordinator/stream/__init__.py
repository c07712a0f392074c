"""One partition and its streams: records in, effects of the core out."""
