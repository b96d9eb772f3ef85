"""One try of a task: Airflow as ports, the runner, and what operators, notifiers and the hook make of it."""
