"""Campaigns: planned on disk, journaled in windows, sent concurrently, reported to the last recipient."""
