"""What everything in the sandbox stands on: state, clock, settings, money, counts."""
