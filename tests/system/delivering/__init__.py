"""A campaign whose delivery reports come in while the API server is killed; what is known of everybody is counted."""
