"""The templates and contact columns of a new sandbox."""

from __future__ import annotations

from typing import Any

COLUMNS: tuple[dict[str, Any], ...] = (
    {"id": "col_7f3a01", "name": "Name", "type": "TEXT"},
    {"id": "col_7f3a02", "name": "Phone", "type": "PHONE NUMBER"},
    {"id": "col_7f3a03", "name": "Email", "type": "EMAIL"},
    {"id": "col_7f3a04", "name": "Birthday", "type": "DATE"},
    {"id": "col_7f3a05", "name": "Plan", "type": "SELECT"},
    {"id": "col_7f3a06", "name": "Tags", "type": "MULTI SELECT"},
    {"id": "col_7f3a07", "name": "Website", "type": "URL"},
    {"id": "col_7f3a08", "name": "Points", "type": "NUMBER"},
)

TEMPLATES: tuple[dict[str, Any], ...] = (
    {"id": "tpl_welcome", "channel": "sms", "content": "Hello {name}, welcome to {company}!"},
    {"id": "tpl_reminder", "channel": "sms", "content": "Dear {name}, your appointment is on {date} at {time}."},
    {
        "id": "tpl_newsletter",
        "channel": "email",
        "subject": "News for {name}",
        "content": "Dear {name},\n\nhere is what is new this month.\n\nYour {company} team",
    },
)
