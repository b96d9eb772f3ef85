"""Campaigns on a real Airflow that is killed, over sources that change between tries; who got what is counted there."""
