"""TLS between the members of an instance: an authority and its certificates, derived from one runtime secret.

The same secret always gives the same files. So a step that writes them is safe to repeat, and no private key is stored
anywhere but on the machine that uses it."""

import datetime
import hashlib
import ipaddress
from collections.abc import Iterable

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# Fixed dates, because the time of a repetition must not change the files. The authority ends with its secret: the next
# secret gives another authority, and no certificate of the old one is accepted.
_BEGINS = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
_ENDS = datetime.datetime(2100, 1, 1, tzinfo=datetime.UTC)
_AUTHORITY = "authority"
_SIGNS = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


class Certificate(msgspec.Struct, frozen=True):
    """A certificate and its private key, as PEM text.

    File("/etc/kv/server.key", certificate.key, mode=0o400)"""

    certificate: str
    key: str


class Authority:
    """Signs the certificates of one instance. Each is for servers and for clients.

    authority = Authority(await op.secret("cluster_bootstrap", "tls"), op.instance.instance_id)
    files = authority.issue("server-1", ["10.0.0.1", "localhost"])"""

    def __init__(self, secret: str, name: str) -> None:
        """`secret` is the runtime secret; `name` is shown in the certificate of the authority."""
        self._secret = secret
        self._key = self._derived(_AUTHORITY)
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        signed = self._signed(self._name, self._key).add_extension(constraints, critical=True)
        self.certificate = _pem(signed.add_extension(_SIGNS, critical=True).sign(self._key, None))
        """The certificate that every member and client trusts, as PEM text."""

    def issue(self, name: str, hosts: Iterable[str]) -> Certificate:
        """Return the certificate of one member. `hosts` are the addresses and names at which others reach it.

        authority.issue("server-1", ["10.0.0.1"]).key"""
        key = self._derived(f"member {name}")
        usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
        signed = self._signed(subject, key).add_extension(usages, critical=False)
        names = x509.SubjectAlternativeName([_host(host) for host in dict.fromkeys(hosts)])
        content = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return Certificate(_pem(signed.add_extension(names, critical=False).sign(self._key, None)), content.decode())

    def _derived(self, purpose: str) -> Ed25519PrivateKey:
        derive = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=f"gpuaas tls {purpose}".encode())
        return Ed25519PrivateKey.from_private_bytes(derive.derive(self._secret.encode()))

    def _signed(self, subject: x509.Name, key: Ed25519PrivateKey) -> x509.CertificateBuilder:
        public = key.public_key()
        # Two certificates of one authority never have the same number: it is made from the key.
        serial = int.from_bytes(hashlib.sha256(public.public_bytes_raw()).digest()[:16], "big") >> 1
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(public)
        builder = builder.serial_number(serial).not_valid_before(_BEGINS).not_valid_after(_ENDS)
        return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False).add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
        )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
