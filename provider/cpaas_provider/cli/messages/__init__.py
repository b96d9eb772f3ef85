"""``airflow cpaas send-sms | send-email | lookup | otp | balance``: single messages from a terminal or a script."""
