"""What a contact sync costs, beside its peers: ``make bench-contacts``."""
