"""``airflow cpaas doctor``: checks of everything the provider needs, and what to do where one fails."""
