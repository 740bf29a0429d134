"""The platform's TLS authority, created at first start, and the server certificates that it signs.

Clients pin the authority by its fingerprint, which comes with the enrolment token, so they trust no unknown server, and
a renewed server certificate changes nothing for them. `certificates` loads and renews the certificates."""

import datetime
import hashlib
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gpuaas_platform.kit import keys

_AUTHORITY_DAYS, _SERVER_DAYS = 3650, 90


@dataclass(frozen=True)
class Pinned:
    """The authority that clients pin: the platform's own, or that of the operator's certificate."""

    certificate: x509.Certificate

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def ends_at(self) -> datetime.datetime:
        return self.certificate.not_valid_after_utc

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.certificate.public_bytes(serialization.Encoding.DER)).hexdigest()


@dataclass(frozen=True)
class CertificateAuthority(Pinned):
    key: ec.EllipticCurvePrivateKey


def load_authority(folder: Path, now: datetime.datetime) -> CertificateAuthority:
    """Load the TLS authority, or create it at first start. If two processes start together, they get the same one: each
    file is created only if it does not exist, first the key, then the certificate that it signs."""
    key_path, certificate_path = folder / "tls-authority.pem", folder / "tls-authority.crt"
    if not key_path.exists():
        keys.create_private(key_path, keys.private_pem(ec.generate_private_key(ec.SECP256R1())))
    key = serialization.load_pem_private_key(key_path.read_bytes(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError(f"{key_path} is not an elliptic-curve key")
    if not certificate_path.exists():
        name, own_key = "GPUaaS local authority", x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        ends_at = now + datetime.timedelta(days=_AUTHORITY_DAYS)
        certificate = _signed(name, key, _name(name), key, now, own_key, ends_at=ends_at, is_authority=True)
        keys.create_private(certificate_path, certificate.public_bytes(serialization.Encoding.PEM))
    return CertificateAuthority(x509.load_pem_x509_certificate(certificate_path.read_bytes()), key)


def server_certificate(
    authority: CertificateAuthority, address: str, now: datetime.datetime
) -> tuple[x509.Certificate, bytes]:
    """Return a new TLS certificate for `address`, with the PEM text of its private key and of the certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    names = x509.SubjectAlternativeName(_alternative_names(address))
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    ends_at = min(now + datetime.timedelta(days=_SERVER_DAYS), max(authority.ends_at, now))
    issuer = authority.certificate.subject
    certificate = _signed(address, key, issuer, authority.key, now, names, issuer_key, ends_at=ends_at)
    return certificate, keys.private_pem(key) + certificate.public_bytes(serialization.Encoding.PEM)


def _alternative_names(address: str) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    try:
        names.append(x509.IPAddress(ipaddress.ip_address(address)))
    except ValueError:
        names.append(x509.DNSName(address))
    return names


def _signed(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    issuer_key: ec.EllipticCurvePrivateKey,
    now: datetime.datetime,
    *extensions: x509.ExtensionType,
    ends_at: datetime.datetime,
    is_authority: bool = False,
) -> x509.Certificate:
    """Return a signed certificate: of the authority, which may only sign certificates, or of a server."""
    usage = x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        x509.CertificateBuilder(issuer, _name(name), key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(ends_at)
        .add_extension(x509.BasicConstraints(is_authority, 0 if is_authority else None), critical=True)
        .add_extension(usage, critical=True)
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64])])
