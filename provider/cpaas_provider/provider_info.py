"""What this provider offers to Airflow, as pure data. Imports nothing: every Airflow command loads it."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEFAULT_CONN_ID = "cpaas_default"

# As [project.urls] of pyproject.toml has it; a test compares the two.
DOCUMENTATION = "https://airflow-provider-cpaas.readthedocs.io/en/stable/"
_GUIDES = (
    "sms-and-email",
    "campaigns",
    "suppressions",
    "passcodes",
    "airtime",
    "contacts",
    "delivery-tracking",
    "pages",
    "dags-on-delivery",
    "notifications",
    "scaling-out",
    "publish-the-receiver",
    "moving-from-an-http-operator",
    "test-your-dags",
)

INVALID_NUMBER_REASONS = ", ".join(
    (
        "unknown subscriber",
        "subscriber unknown",
        "no such subscriber",
        "subscriber does not exist",
        "unknown number",
        "invalid number",
        "invalid phone number",
        "invalid mobile number",
        "invalid msisdn",
        "invalid destination",
        "invalid destination address",
        "invalid destination number",
        "invalid recipient number",
        "number invalid",
        "number does not exist",
        "number doesn't exist",
        "phone number does not exist",
        "recipient number does not exist",
        "recipient number doesn't exist",
        "nonexistent number",
        "non-existent number",
        "unknown msisdn",
        "unassigned number",
        "unallocated number",
        "unallocated unassigned number",
        "unassigned unallocated number",
        "number unallocated",
        "number not allocated",
        "number not assigned",
        "number not in service",
        "number not in use",
        "number disconnected",
        "disconnected number",
    )
)
HARD_BOUNCE_REASONS = ", ".join(
    (
        "mailbox does not exist",
        "mailbox not found",
        "no such mailbox",
        "address does not exist",
        "email address does not exist",
        "address not found",
        "user unknown",
        "unknown user",
        "user not found",
        "user does not exist",
        "user doesn't exist",
        "no such user",
        "no such recipient",
        "no such address",
        "unknown recipient",
        "recipient unknown",
        "recipient not found",
        "recipient does not exist",
        "account does not exist",
        "email account that you tried to reach does not exist",
        "no such account",
        "invalid recipient",
        "invalid mailbox",
        "hard bounce",
        "user unknown in virtual mailbox table",
        "user unknown in virtual alias table",
        "user unknown in local recipient table",
        "user unknown in relay recipient table",
        "no mailbox by that name",
        "5.1.1",
        "5.1.3",
        "5.1.6",
        "5.1.10",
    )
)
_HASHES = (
    "Comma-separated secrets, newest first, that key the hashes by which the database knows recipients on the "
    "suppression list and in frequency caps. Without it, the hashes are keyed with a random value in the database. All "
    "processes need the same. Keep an old secret behind a new one for as long as the list has entries from its time."
)

_NAME = "CPaaS"
_MODULES = ("sms", "email", "otp", "airtime", "contact_sync", "contacts", "lookup")


def _text(label: str, description: str, **schema: object) -> dict[str, object]:
    return {"label": label, "description": description, "schema": {"type": ["string", "null"], **schema}}


def _number(label: str, description: str, **schema: object) -> dict[str, object]:
    return {"label": label, "description": description, "schema": {"type": ["number", "null"], **schema}}


def _whole(label: str, description: str, **schema: object) -> dict[str, object]:
    return {"label": label, "description": description, "schema": {"type": ["integer", "null"], **schema}}


def _switch(label: str, description: str, default: bool) -> dict[str, object]:
    return {
        "label": label,
        "description": description,
        "schema": {"type": ["boolean", "null"], "default": default},
    }


# Fields whose names hold "secret" or "password" are masked by Airflow wherever a connection is shown.
CONNECTION_FIELDS: dict[str, dict[str, object]] = {
    "auth_scheme": _text("Authorization scheme", "Word before the API key; empty sends the raw key.", default="Bearer"),
    "sender_id": _text("SMS sender ID", "Default sender of SMS; at most 11 characters when alphanumeric."),
    "email_sender_id": _text("Email sender", "Default sender address of emails."),
    "default_region": _text("Default region", "Two-letter region of national phone numbers, e.g. NG."),
    "number_check": _text(
        "Number check",
        "valid: a phone number must be in its country's numbering plan. possible: the right length is enough, for "
        "plans that are newer than the phonenumbers library.",
        default="valid",
    ),
    "requests_per_second": _number(
        "Requests per second", "Maximum requests started per second.", default=10, exclusiveMinimum=0
    ),
    "share_rate_limit": _switch(
        "Share the rate limit",
        "Let all tasks of this connection keep to requests_per_second together, through the provider's database. "
        "Without it each task has a limit of its own.",
        default=False,
    ),
    "daily_budget": _number(
        "Daily budget",
        "The most that all requests of this connection may cost in a day, in the account's currency units, over all "
        "DAGs. The provider's database has what was spent.",
        minimum=0,
    ),
    "monthly_budget": _number(
        "Monthly budget", "The most that all requests of this connection may cost in a month.", minimum=0
    ),
    "budget_timezone": _text(
        "Time zone of budgets", "Where days and months of the budgets begin, e.g. Africa/Lagos.", default="UTC"
    ),
    "price_per_message": _number(
        "Price of a message",
        "For budgets: the cost of an SMS or email to one recipient at least. Needed if the service names no charge.",
        minimum=0,
    ),
    "price_per_passcode": _number(
        "Price of a passcode", "For budgets: the cost of a passcode, as the service names none.", minimum=0
    ),
    "price_per_lookup": _number(
        "Price of a lookup", "For budgets: the cost of a phone lookup, as the service names none.", minimum=0
    ),
    "max_concurrency": _whole("Concurrency", "Maximum requests in flight.", default=8, minimum=1),
    "recipients_per_request": _whole(
        "Recipients per request", "Maximum recipients of one request.", default=500, minimum=1
    ),
    "timeout": _number("Timeout", "Seconds to wait for a response.", default=30, exclusiveMinimum=0),
    "callback_url": _text(
        "Callback URL", "Public base URL of the receiver of delivery reports, e.g. https://airflow.example.com/cpaas."
    ),
    "webhook_secret": _text(
        "Webhook secret", "Secret with which the service signs the account's delivery reports.", format="password"
    ),
    "signature_header": _text(
        "Signature header", "Header that carries the signature of the account's delivery reports."
    ),
    "verify": _text("TLS verification", "true, false, or the path of a CA bundle.", default="true"),
    "client_cert": _text(
        "Client certificate",
        "Path of a PEM file on every worker and triggerer. It holds the certificate for a service that asks for one, "
        "followed by those of its issuers.",
    ),
    "client_key": _text(
        "Client key", "Path of a PEM file with the private key. Empty if the file of the client certificate holds it."
    ),
    "client_key_password": _text(
        "Client key password", "Password of the private key, if it is encrypted.", format="password"
    ),
    "proxy": _text(
        "Proxy", "URL of an HTTP proxy, e.g. http://user@proxy.example.com:3128. A password in it is refused."
    ),
    "proxy_password": _text("Proxy password", "Password of the proxy.", format="password"),
    "callback_secret": _text(
        "Callback secrets",
        "Comma-separated, newest first. Signs callback URLs and keys the hashes of the journal. Without it the API key "
        "does both. With it you can change the API key: delivery reports are still accepted, and later tries still "
        "know what earlier tries sent.",
        format="password",
    ),
    "allowed_recipients": _text(
        "Allowed recipients",
        "For staging: comma-separated numbers, addresses or @domains. The provider sends to no other recipient.",
    ),
    "allow_http": _switch("Allow plain http", "Permit http to hosts other than this machine.", default=False),
    "placeholder_format": _text(
        "Placeholder format", "The service's notation of a placeholder; used to count pages.", default="{name}"
    ),
    "row_updates": _text(
        "Row updates",
        "partial: an update of a contact row sends only the cells that changed. whole: it sends all cells of the "
        "source, for a service that clears the cells an update does not send.",
        default="partial",
    ),
    "insufficient_balance_words": _text(
        "Insufficient balance words",
        "Comma-separated. A rejection with one of these in its message means that the account cannot pay. It ends a "
        "campaign at once.",
        default="insufficient balance, insufficient funds, insufficient credit",
    ),
    "otp_revoke_path": _text("Revoke path", "Path of the revoke operation; holds {id}.", default="/otp/{id}"),
}


def with_documentation(kind: type, page: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return a task's arguments with a link to its entry in the reference, unless the author documents the task.

    :param kind: the operator's class; for an author's subclass, the entry is that of the provider's class
    :param page: the page of the reference
    """
    if any(arguments.get(field) for field in ("doc", "doc_md", "doc_json", "doc_yaml", "doc_rst")):
        return arguments
    name = next(base.__name__ for base in kind.__mro__ if base.__module__.startswith("cpaas_provider."))
    link = f"[Documentation of {name}]({DOCUMENTATION}reference/{page}.html#{name.lower()})"
    return {**arguments, "doc_md": link}


def get_provider_info() -> dict[str, object]:
    """Return the provider's metadata (Airflow's ``provider_info.schema.json``)."""
    return {
        "package-name": "airflow-provider-cpaas",
        "name": _NAME,
        "description": "SMS, email, one-time passcodes, airtime, contacts and phone lookup by one messaging service.",
        "integrations": [
            {
                "integration-name": _NAME,
                "external-doc-url": DOCUMENTATION,
                "how-to-guide": [f"{DOCUMENTATION}guides/{guide}.html" for guide in _GUIDES],
                "tags": ["service"],
            }
        ],
        "operators": [
            {
                "integration-name": _NAME,
                "python-modules": [f"cpaas_provider.operators.{module}" for module in _MODULES],
            }
        ],
        "sensors": [
            {
                "integration-name": _NAME,
                "python-modules": ["cpaas_provider.sensors.delivery", "cpaas_provider.sensors.otp"],
            }
        ],
        "hooks": [{"integration-name": _NAME, "python-modules": ["cpaas_provider.hooks.cpaas"]}],
        "triggers": [
            {
                "integration-name": _NAME,
                "python-modules": [
                    "cpaas_provider.triggers.delivery",
                    "cpaas_provider.triggers.otp",
                    "cpaas_provider.triggers.wait",
                ],
            }
        ],
        "notifications": [
            "cpaas_provider.notifications.email.EmailNotifier",
            "cpaas_provider.notifications.sms.SmsNotifier",
        ],
        "extra-links": ["cpaas_provider.links.delivery.DeliveryLink"],
        "connection-types": [
            {
                "connection-type": "cpaas",
                "hook-class-name": "cpaas_provider.hooks.cpaas.CpaasHook",
                "hook-name": _NAME,
                "ui-field-behaviour": {
                    "hidden-fields": ["schema", "login", "port"],
                    "relabeling": {"host": "Base URL", "password": "API key"},
                    "placeholders": {"host": "https://api.example.com/v1", "password": "the account's API key"},
                },
                "conn-fields": CONNECTION_FIELDS,
            }
        ],
        "cli": ["cpaas_provider.cli.get_cli_commands"],
        "config": {
            "cpaas": {
                "description": "Settings of the CPaaS provider.",
                "options": {
                    "database": {
                        "description": (
                            "The provider's own database: a SQLAlchemy URL, or the id of an Airflow connection of type "
                            "postgres or sqlite. It stores delivery reports, campaigns with an idempotency_key, the "
                            "suppression list, alerts of notifiers, and cached lookups. Default: a SQLite file, "
                            "cpaas/cpaas.db in Airflow's home. Workers, triggerer and API server need the same "
                            "database. If they share no disk, use PostgreSQL."
                        ),
                        "version_added": "0.1.0",
                        "type": "string",
                        "sensitive": True,
                        "example": "postgresql://user:password@host:5432/cpaas",
                        "default": None,
                    },
                    "journal": {
                        "description": (
                            "Where tasks keep their journals: task_state is Airflow's task state store, database is "
                            "the provider's database, which all workers must share. A journal in the database "
                            "survives a clear that drops the task state, as Airflow 3.4 does by default."
                        ),
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "database",
                        "default": "task_state",
                    },
                    "callback_days": {
                        "description": (
                            "Number of days for which a callback URL accepts delivery reports. Later reports get 404. "
                            "Set it no higher than --days of airflow cpaas db prune, because the receiver cannot "
                            "distinguish a pruned report from a new one."
                        ),
                        "version_added": "0.1.0",
                        "type": "integer",
                        "example": None,
                        "default": "90",
                    },
                    "retention_days": {
                        "description": (
                            "Number of days for which delivery reports, requests and what the pages show are stored. "
                            "The API server deletes what is older, once a day. At least callback_days count. 0 "
                            "deletes nothing."
                        ),
                        "version_added": "0.1.0",
                        "type": "integer",
                        "example": "400",
                        "default": "90",
                    },
                    "lookup_retention_days": {
                        "description": (
                            "Number of days for which phone lookups are stored, deleted with retention_days. With "
                            "fewer than the longest lookup_ttl of your campaigns, numbers are looked up and charged "
                            "again. 0 deletes nothing, reports neither."
                        ),
                        "version_added": "0.1.0",
                        "type": "integer",
                        "example": "365",
                        "default": "90",
                    },
                    "recipient_secret": {
                        "description": _HASHES,
                        "version_added": "0.1.0",
                        "type": "string",
                        "sensitive": True,
                        "example": None,
                        "default": None,
                    },
                    "results_file_mode": {
                        "description": (
                            "The mode of results files on a disk, as three octal digits: 6 for the owner, then 0, 4 or "
                            "6 for the group, then 0 or 4 for all other users. The umask does not change it. Folders "
                            "that the provider creates for a results file can be listed by those who may read the "
                            "file. Results files in object storage have no mode."
                        ),
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "640",
                        "default": "600",
                    },
                    "require_shared_database": {
                        "description": (
                            "Whether sends that consult the stored suppression list are refused while database is not "
                            "set and the executor has several workers. Each worker then has a list of its own. By "
                            "default the task's log has a warning."
                        ),
                        "version_added": "0.1.0",
                        "type": "boolean",
                        "example": None,
                        "default": "False",
                    },
                    "invalid_number_reasons": {
                        "description": (
                            "Comma-separated. A delivery report of an undelivered SMS puts the number on the "
                            "suppression list if one of these is a clause of its reason. No other clause may be "
                            "unknown. Empty adds none."
                        ),
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": None,
                        "default": INVALID_NUMBER_REASONS,
                    },
                    "hard_bounce_reasons": {
                        "description": (
                            "Comma-separated. The report of a bounced email puts the address on the suppression list "
                            "if one of these is a clause or code of its reason. No other clause or code may be "
                            "unknown. The word bounced adds addresses whose bounce has no reason. Empty adds none."
                        ),
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": None,
                        "default": HARD_BOUNCE_REASONS,
                    },
                },
            }
        },
    }
