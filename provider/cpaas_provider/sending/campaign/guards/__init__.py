"""What decides which recipients a campaign may send to now: budget, send window, do-not-disturb, circuit breaker."""
