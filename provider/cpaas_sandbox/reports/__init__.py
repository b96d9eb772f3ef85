"""Delivery reports: outcomes of recipients, what is reported when, and how it is sent."""
