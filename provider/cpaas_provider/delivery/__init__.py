"""What comes back: delivery reports, received, proved genuine and kept in the store. It knows no Airflow."""
