"""What tasks and the receiver record for the pages: progress of tasks, counts of reports, passcodes, airtime."""
