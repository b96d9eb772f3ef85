"""Recipients as the service wants them: phone numbers, email addresses, and the allowlist of a staging connection."""
