"""Certificates for tests: an authority that signs for servers and clients, by the openssl command."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="the openssl command is not here")

CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")  # milliseconds, where RSA takes seconds
LOCAL = "DNS:localhost,IP:127.0.0.1"


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path


class Authority:
    """Makes its files in a directory of its own."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.ca = directory / f"{name}.pem"
        self._key = directory / f"{name}.key"
        self._serial = 0x1000
        openssl("req", "-x509", *CURVE, "-days", "2", "-subj", f"/CN={name}", "-keyout", self._key, "-out", self.ca)

    def sign(self, name: str, subject: str = "", names: str = LOCAL, file: str = "") -> Pair:
        """`subject` as openssl takes it, /O=…/CN=…; `file` is what the files are called, anew if they are there."""
        pair = Pair(self.directory / f"{file or name}.pem", self.directory / f"{file or name}.key")
        self._serial += 1
        request, extensions = self.directory / "request", self.directory / "extensions"
        extensions.write_text(f"subjectAltName={names}\n")
        openssl("req", *CURVE, "-subj", subject or f"/CN={name}", "-keyout", pair.key, "-out", request)
        signer = ("-CA", self.ca, "-CAkey", self._key, "-set_serial", hex(self._serial))
        openssl("x509", "-req", "-in", request, *signer, "-days", "2", "-extfile", extensions, "-out", pair.certificate)
        return pair

    def client_context(self, pair: Pair | None = None) -> ssl.SSLContext:
        """A client's, that trusts this authority, with its own certificate if there is one."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if pair is not None:
            context.load_cert_chain(pair.certificate, pair.key)
        return context


def openssl(*arguments: str | Path) -> None:
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
