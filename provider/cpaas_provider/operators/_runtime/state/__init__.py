"""The task state store, in which a task's journal is kept."""
