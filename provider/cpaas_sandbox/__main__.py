"""Command line of the sandbox: ``cpaas-sandbox --port N --api-key KEY [--db FILE]``."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from cpaas_sandbox.core.account import DEFAULT_BALANCE, MAX_MONEY
from cpaas_sandbox.core.context import Options
from cpaas_sandbox.core.database import UnusableDatabaseError
from cpaas_sandbox.core.settings import SETTINGS, read_settings
from cpaas_sandbox.guard import HOST
from cpaas_sandbox.server import bind, make_server, url_of

# option -> its setting, and the environment variable that may give it
_WEBHOOK: dict[str, tuple[str, str | None]] = {
    "--webhook-url": ("webhook_url", None),
    "--webhook-secret": ("webhook_secret", "CPAAS_SANDBOX_WEBHOOK_SECRET"),
    "--signature-header": ("signature_header", None),
}


def _reader(kind: Any, message: str) -> Callable[[str], Any]:
    """Return a function that parses an option's text as a type, and fails with the message."""
    adapter: TypeAdapter[Any] = TypeAdapter(kind)

    def read(text: str) -> Any:
        try:
            return adapter.validate_strings(text)
        except ValidationError:
            raise argparse.ArgumentTypeError(message) from None

    return read


_port = _reader(Annotated[int, Field(ge=0, le=65535)], "not a port: 0 to 65535, 0 picks a free one")
_key = _reader(
    Annotated[str, Field(pattern="^[!-~]([ -~]*[!-~])?$")], "must be printable ASCII without spaces around it"
)
_allowed_host = _reader(
    Annotated[str, Field(pattern=f"^{HOST}$")], "not a host as in a URL: a name, an address, or [an IPv6 address]"
)
_balance = _reader(Annotated[float, Field(ge=0, le=MAX_MONEY)], f"not an amount: 0 to {MAX_MONEY:.0f}")


def _value(name: str, text: str) -> Any:
    """Parse the value of a setting: the text itself for settings that are texts, JSON for the others."""
    try:
        value = text if isinstance(SETTINGS[name].default, str) else json.loads(text.lower())
        return getattr(read_settings({name: value}), name)
    except json.JSONDecodeError:
        wanted = "true or false" if isinstance(SETTINGS[name].default, bool) else "a number"
        raise argparse.ArgumentTypeError(f"{name}: must be {wanted}") from None
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _setting(text: str) -> tuple[str, Any]:
    """Parse NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not equals or name not in SETTINGS:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE with one of: {', '.join(SETTINGS)}")
    return name, _value(name, value)


def _parser() -> argparse.ArgumentParser:
    settings = "\n".join(
        f"  {name} = {json.dumps(setting.default)}\n      {setting.description}" for name, setting in SETTINGS.items()
    )
    parser = argparse.ArgumentParser(
        prog="cpaas-sandbox",
        description="The messaging service as a local program: SMS, email, OTP, airtime, contacts, phone lookup.\n"
        "It sends nothing to the outside. All messages are on the inbox page at /.",
        epilog=f"settings (--set, or PUT /_control/settings while it runs), with defaults:\n{settings}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--port", type=_port, required=True, help="port to listen on (required); 0 takes a free port and prints it"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument(
        "--allow-host",
        metavar="NAME",
        type=_allowed_host,
        action="append",
        default=[],
        help="one more name under which clients reach the sandbox, such as that of its container; may be given several "
        "times. Requests for other hosts are refused, because a web page can make a browser send them",
    )
    parser.add_argument(
        "--api-key",
        type=_key,
        default=os.environ.get("CPAAS_SANDBOX_API_KEY"),
        help="API key that clients must send (required, here or in the variable CPAAS_SANDBOX_API_KEY)",
    )
    parser.add_argument(
        "--db",
        metavar="FILE",
        help="SQLite file for the state (default: in memory). It holds numbers, messages and passcodes, so only its "
        "owner may read it: its mode is set to 0600",
    )
    parser.add_argument("--balance", type=_balance, default=DEFAULT_BALANCE, help="initial balance")
    parser.add_argument(
        "--set",
        metavar="NAME=VALUE",
        type=_setting,
        action="append",
        default=[],
        help="one of the settings below; may be given several times",
    )
    for flag, (name, variable) in _WEBHOOK.items():
        parser.add_argument(
            flag,
            dest=name,
            metavar=name.rpartition("_")[2].upper(),
            type=partial(_value, name),
            default=os.environ.get(variable) if variable else None,
            help=(SETTINGS[name].description or "") + (f" (here or in the variable {variable})" if variable else ""),
        )
    parser.add_argument(
        "--allow-remote-callbacks", action="store_true", help="send delivery reports to other hosts, too"
    )
    parser.add_argument("--access-log", action="store_true", help="log operation and status of every request")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the sandbox until it is interrupted."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.api_key is None:
        parser.error("the following arguments are required: --api-key")
    settings = dict(args.set)
    settings |= {name: getattr(args, name) for name, _ in _WEBHOOK.values() if getattr(args, name) is not None}
    allowed_hosts = (args.host, *args.allow_host)
    options = Options(args.api_key, args.db, args.balance, settings, args.allow_remote_callbacks, allowed_hosts)
    try:
        listener = bind(args.host, args.port)
    except OSError as error:
        parser.error(f"cannot listen on {args.host}:{args.port}: {error.strerror or error}")
    with listener:
        try:
            server = make_server(options, args.access_log)
        except (UnusableDatabaseError, ValueError) as error:
            parser.error(f"cannot use --db: {error}" if isinstance(error, UnusableDatabaseError) else str(error))
        url = url_of(listener)
        sys.stdout.write(f"cpaas-sandbox: service at {url}  inbox {url}/  control {url}/_control/\n")
        sys.stdout.flush()
        # After its shutdown, uvicorn raises the signal again for the handler that was set before.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        with contextlib.suppress(KeyboardInterrupt):
            server.run(sockets=[listener])
    return 0


if __name__ == "__main__":
    sys.exit(main())
