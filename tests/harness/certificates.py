"""A certificate for servers of tests on loopback, made by the program `openssl`, and trusted for one test."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest


def server_context(folder: Path, monkeypatch: pytest.MonkeyPatch | None = None) -> ssl.SSLContext:
    """Return the context of a server with a new certificate for `localhost`. With `monkeypatch` clients trust it.

    Skips the test if `openssl` is not installed.
    """
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("openssl is not installed (Debian package openssl)")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    options = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-batch"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    command = [program, "req", "-x509", *options, *names, "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    if monkeypatch is not None:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context
