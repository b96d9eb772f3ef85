"""The pages in Airflow's UI: campaigns and what became of them, contact syncs, passcodes, airtime and reports."""
