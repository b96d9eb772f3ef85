"""What tasks and the receiver record for the pages: how far a task is, and how much arrived, was bought or verified."""
