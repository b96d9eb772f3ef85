"""One try of a campaign: its spec, journal, partitions and report."""
