"""TLS to the service: the client certificate, and what an alert of the server proves."""

from __future__ import annotations

import os
import re
import ssl
from pathlib import Path
from typing import Any

from cpaas_provider._common.records import PrivateRecord
from cpaas_provider.api.errors import CpaasConfigurationError
from cpaas_provider.api.http.wire import TransportFailure
from cpaas_provider.api.settings import ClientSettings

_ALERT = re.compile(r"(?:SSLV3|TLSV1|TLSV13)_ALERT_(\w+)")
"""OpenSSL's reasons for an alert that the other side sent."""
_REFUSALS = frozenset(
    {
        "bad_certificate", "unsupported_certificate", "certificate_revoked", "certificate_expired",
        "certificate_unknown", "unknown_ca", "certificate_required",
    }
)  # fmt: skip
"""Alerts by which a server ends a handshake because of the client's certificate (RFC 8446, 4.4.2.4 and 6.2).

``access_denied`` is not among them: a server may also send it about a request that it has read.
"""


class TlsAlertError(ssl.SSLError):
    """The server ended the TLS connection by an alert."""

    def __init__(self, failure: TransportFailure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


class _ServiceTls(ssl.SSLObject):
    """TLS of one connection, which turns alerts of the server into ``TlsAlertError``."""

    _version: str | None = None
    """The version of TLS; ``None`` until the client's part of the handshake is done."""
    _has_read = False
    """Whether the server has sent a byte of any response."""
    alert: TlsAlertError | None = None

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except ssl.SSLWantReadError:
            raise
        except ssl.SSLError as error:
            raise self._as_alert(error) from None
        # OpenSSL no longer has it after an alert.
        self._version = self.version()

    def read(self, len: int = 1024, buffer: Any = None) -> Any:
        try:
            received = super().read(len, buffer)
        except ssl.SSLWantReadError:
            raise
        except ssl.SSLError as error:
            raise self._as_alert(error) from None
        if received:
            self._has_read = True
        elif not self._has_read:
            raise self._ended("close_notify")
        return received

    def _as_alert(self, error: ssl.SSLError) -> ssl.SSLError:
        name = _alert_name(error)
        return error if name is None else self._ended(name)

    def _ended(self, alert: str) -> TlsAlertError:
        has_left = self._version is not None
        self.alert = TlsAlertError(
            _failure(alert, may_have_left=not self._is_refusal(alert), unread_by_standard=has_left)
        )
        return self.alert

    def _is_refusal(self, alert: str) -> bool:
        """Tell whether an alert of a server that follows the standard means that it refused the handshake.

        In TLS 1.3 the client finishes its handshake, and sends its request, before the server has checked the client's
        certificate. A server that refuses it has not accepted the handshake, so it cannot have read data of this
        connection: there is no early data, and the client does not offer authentication after the handshake.
        Without a session ticket, only the standard distinguishes a refusal from a later alert about the certificate:
        both are the same bytes. It allows the later one only after authentication that this client does not offer.
        The server has accepted the handshake if it sent a byte of a response, on this request or an earlier one, or a
        session ticket (RFC 8446, 4.6.1). In TLS 1.2 it has done so before the client's handshake is finished, and may
        ask for a certificate after it has read a request (renegotiation).
        """
        if self._version is None:
            return True
        if alert not in _REFUSALS or self._has_read or self._version != "TLSv1.3":
            return False
        return self.session is not None and not self.session.has_ticket


class ClientCertificate(PrivateRecord, frozen=True):
    """The certificate that a client shows to a service that asks for one.

    :param version: changes when a file changes, as in a renewal
    """

    cert: str
    key: str | None
    key_password: str | None
    version: tuple[object, ...]


def find_client_certificate(settings: ClientSettings) -> ClientCertificate | None:
    """Return the client certificate of the settings.

    :raises CpaasConfigurationError: when a file cannot be read
    """
    if settings.client_cert is None:
        return None
    paths = {"client_cert": settings.client_cert, "client_key": settings.client_key}
    version = tuple(_file_version(option, path) for option, path in paths.items() if path is not None)
    return ClientCertificate(settings.client_cert, settings.client_key, settings.client_key_password, version)


def _file_version(option: str, path: str) -> tuple[int, ...]:
    try:
        with Path(path).open("rb") as file:
            status = os.fstat(file.fileno())
    except (OSError, ValueError) as error:
        raise CpaasConfigurationError(
            f"{option} names a file that cannot be read ({type(error).__name__}). Give the path of a PEM file on "
            "every machine that runs tasks or triggers."
        ) from None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def prepare_context(context: ssl.SSLContext, certificate: ClientCertificate | None) -> None:
    """Let connections of a context turn alerts into ``TlsAlertError``, and show the client certificate.

    :raises CpaasConfigurationError: when certificate or key cannot be used; no content of a file is shown
    """
    context.sslobject_class = _ServiceTls
    if certificate is not None:
        _load(context, certificate)


def _load(context: ssl.SSLContext, certificate: ClientCertificate) -> None:
    key_password = certificate.key_password
    holder = "client_cert" if certificate.key is None else "client_key"
    is_encrypted = False

    def get_password() -> str:
        nonlocal is_encrypted
        is_encrypted = True
        # Without this function, OpenSSL would ask for the password on the terminal.
        return key_password or ""

    try:
        context.load_cert_chain(certificate.cert, certificate.key, get_password)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None)
        if reason == "KEY_VALUES_MISMATCH":
            what = f"The private key in {holder} does not belong to the first certificate in client_cert."
        elif is_encrypted and not key_password:
            what = f"The private key in {holder} is encrypted. Set client_key_password."
        elif is_encrypted:
            what = f"The private key in {holder} cannot be decrypted with client_key_password."
        else:
            what = (
                "client_cert must be a PEM file of the client certificate, followed by those of its issuers. "
                f"The file in {holder} must hold the private key in PEM form (OpenSSL: {reason or 'not PEM'})."
            )
        raise CpaasConfigurationError(what) from None


def alert_failure(error: BaseException) -> TransportFailure | None:
    """Return the failure if an error is an alert of the server, else ``None``."""
    if isinstance(error, TlsAlertError):
        return error.failure
    # An alert of the TLS connection to a proxy.
    if isinstance(error, ssl.SSLError) and (name := _alert_name(error)) is not None:
        return _failure(name, may_have_left=True)
    return None


def _alert_name(error: ssl.SSLError) -> str | None:
    match = _ALERT.fullmatch(error.reason or "")
    return match and match[1].lower()


def _failure(name: str, *, may_have_left: bool, unread_by_standard: bool = False) -> TransportFailure:
    if may_have_left:
        return TransportFailure(
            f"the server ended the TLS connection before a response arrived (alert {name})", may_have_left=True
        )
    if name in _REFUSALS:
        return TransportFailure(
            f"the server refused the TLS connection because of the client certificate (alert {name}; check client_cert "
            "and client_key of the connection)",
            may_have_left=False,
            unread_by_standard=unread_by_standard,
        )
    return TransportFailure(
        f"the server refused the TLS connection (alert {name}; if it asks for a client certificate, set client_cert "
        "and client_key of the connection)",
        may_have_left=False,
    )
