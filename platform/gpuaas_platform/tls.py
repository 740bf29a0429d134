"""The platform's own certificate authority, made at first start, and the server certificate that it signs.

Clients pin the authority by its fingerprint, which enrolment tokens carry, so none trusts blindly."""

import datetime
import hashlib
import ipaddress
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gpuaas_platform.kit import keys

_AUTHORITY_DAYS, _SERVER_DAYS = 3650, 90


@dataclass(frozen=True)
class CertificateAuthority:
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.certificate.public_bytes(serialization.Encoding.DER)).hexdigest()


def load_authority(folder: Path, now: datetime.datetime) -> CertificateAuthority:
    """Load it, or make it at first start. Two processes that start together get the same: the key is made first, then
    the certificate that it signs."""
    key_path, certificate_path = folder / "tls-authority.pem", folder / "tls-authority.crt"
    if not key_path.exists():
        keys.create_private(key_path, keys.private_pem(ec.generate_private_key(ec.SECP256R1())))
    key = serialization.load_pem_private_key(key_path.read_bytes(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError(f"{key_path} is not an elliptic-curve key")
    if not certificate_path.exists():
        keys.create_private(certificate_path, _self_signed(key, now).public_bytes(serialization.Encoding.PEM))
    return CertificateAuthority(key, x509.load_pem_x509_certificate(certificate_path.read_bytes()))


def server_context(
    authority: CertificateAuthority, folder: Path, address: str, now: datetime.datetime
) -> ssl.SSLContext:
    """Make a new certificate for `address`. The library reads it from a file, which is deleted afterwards."""
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(_name(address), authority.certificate.subject, key.public_key(), now, _SERVER_DAYS)
        .add_extension(x509.SubjectAlternativeName(_alternative_names(address)), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        file.write(keys.private_pem(key) + certificate.public_bytes(serialization.Encoding.PEM))
        file.flush()
        context.load_cert_chain(file.name)
    return context


def _self_signed(key: ec.EllipticCurvePrivateKey, now: datetime.datetime) -> x509.Certificate:
    name = _name("GPUaaS local authority")
    return (
        _builder(name, name, key.public_key(), now, _AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _alternative_names(address: str) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    try:
        names.append(x509.IPAddress(ipaddress.ip_address(address)))
    except ValueError:
        names.append(x509.DNSName(address))
    return names


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime.datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64])])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
