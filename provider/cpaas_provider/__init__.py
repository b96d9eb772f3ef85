"""Apache Airflow provider for a messaging and verification service (SMS, email, OTP, airtime, contacts)."""

__version__ = "0.1.0"
