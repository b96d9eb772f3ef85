"""What holds for all requests of a connection, from whatever DAG."""
