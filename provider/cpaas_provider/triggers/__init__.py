"""Triggers, which wait on the triggerer. They only read, so a restart of the triggerer does no harm."""
