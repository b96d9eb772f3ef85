"""``airflow cpaas receiver``: the receiver in separate processes, with one worker or several."""
