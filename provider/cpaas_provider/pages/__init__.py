"""The pages in Airflow's UI: campaigns and their delivery, contact syncs, passcodes, airtime and reports."""
