"""``airflow cpaas receiver``: the receiver by itself, on one worker or several."""
