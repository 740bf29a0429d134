"""Temporary keys and certificates, made with the openssl program. Used by the fake platform and by tests."""

from __future__ import annotations

import dataclasses
import hashlib
import ssl
from pathlib import Path

from gpuaas_agent import commands, ed25519


@dataclasses.dataclass(frozen=True)
class CertificateAuthority:
    certificate: Path
    private_key: Path

    @property
    def pem(self) -> str:
        return self.certificate.read_text()

    @property
    def sha256(self) -> str:
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(self.pem)).hexdigest()


def make_key(path: Path) -> Path:
    ed25519.ensure_private_key(path)
    return path


def make_authority(directory: Path, name: str) -> CertificateAuthority:
    key, certificate = make_key(directory / f"{name}.key"), directory / f"{name}.pem"
    argv = ["openssl", "req", "-x509", "-new", "-key", str(key), "-days", "2", "-subj", f"/CN={name}"]
    commands.run([*argv, "-addext", "keyUsage=critical,keyCertSign", "-out", str(certificate)])
    return CertificateAuthority(certificate, key)


def make_server_certificate(directory: Path, authority: CertificateAuthority, address: str) -> tuple[Path, Path]:
    """Return the certificate and the key of a server at this IP address."""
    key = make_key(directory / f"server-{address}.key")
    request, extensions = directory / "server.csr", directory / "server.ext"
    certificate = directory / f"server-{address}.pem"
    extensions.write_text(f"subjectAltName=IP:{address}\n")
    commands.run(["openssl", "req", "-new", "-key", str(key), "-subj", "/CN=platform", "-out", str(request)])
    signing = ["openssl", "x509", "-req", "-in", str(request), "-CA", str(authority.certificate), "-days", "2"]
    signing += ["-CAkey", str(authority.private_key), "-CAcreateserial", "-extfile", str(extensions)]
    commands.run([*signing, "-out", str(certificate)])
    return certificate, key
