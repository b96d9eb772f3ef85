"""The cursor of a sync: rows of the source below it were synced by an earlier run."""
