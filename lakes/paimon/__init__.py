"""Apache Paimon: append tables with unaware buckets on a local file system."""
