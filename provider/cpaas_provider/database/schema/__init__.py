"""The tables of the newest version. ``migrations`` brings older databases to this version.

Defining all tables takes 15 ms, so that a task that sends one message defines only those that it reads.
"""
