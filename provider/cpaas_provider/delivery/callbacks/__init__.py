"""What a sender needs to get delivery reports: callback tokens, signatures, and the check of the receiver."""
