"""Where Airflow looks for this provider's example DAGs: a module named after the distribution.

The provider itself is ``cpaas_provider``. In a wheel the folder ``example_dags`` lies beside this file, and Airflow
shows it where ``[core] load_examples`` is on.
"""
