"""Sends on a real Airflow whose processes are killed at random; who got what is counted where it arrives."""
