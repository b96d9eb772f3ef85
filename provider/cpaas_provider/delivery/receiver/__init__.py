"""The web application that takes delivery reports."""
