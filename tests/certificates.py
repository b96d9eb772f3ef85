"""Certificates for tests: authorities, and what they issue, as PEM files."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

_DAY = datetime.timedelta(days=1)


class Authority:
    """A certificate authority that issues certificates for 127.0.0.1 and for clients."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._serials = 0
        self.path = folder / f"{name}-ca.pem"
        self.path.write_bytes(self._sign(name, self._key, is_ca=True).public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, *, expired: bool = False, password: str | None = None) -> tuple[Path, Path]:
        """Return the files of a new certificate and of its private key."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(name, key, expired=expired)
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            encryption = serialization.BestAvailableEncryption(password.encode())
        paths = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        paths[1].write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        )
        return paths

    def server_context(
        self, *, clients: Path | None = None, mode: ssl.VerifyMode = ssl.CERT_REQUIRED, tls12: bool = False
    ) -> ssl.SSLContext:
        """Return the context of a server with a certificate of this authority.

        :param clients: the authority of client certificates; by default the server asks for none
        :param mode: whether a client must have one
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.issue("server"))
        if clients is not None:
            context.verify_mode = mode
            context.load_verify_locations(clients)
        if tls12:
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            context.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
        return context

    def _sign(
        self, name: str, key: ec.EllipticCurvePrivateKey, *, is_ca: bool = False, expired: bool = False
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        self._serials += 1
        return (
            x509.CertificateBuilder()
            .subject_name(_name(name))
            .issuer_name(_name(self._name))
            .public_key(key.public_key())
            .serial_number(self._serials)
            .not_valid_before(now - 2 * _DAY)
            .not_valid_after(now - _DAY if expired else now + _DAY)
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
            )
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
