"""``airflow cpaas contacts``: key maps, files, and the contact list beside them."""
