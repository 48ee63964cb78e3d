"""Access to the metrics server: TLS and basic authentication from a web configuration, and a bearer token.

The web configuration has the format of Prometheus's exporter-toolkit (`web.yml`), so one file serves several exporters:

    tls_server_config:
      cert_file: server.crt
      key_file: server.key
      client_auth_type: RequireAndVerifyClientCert    # with client_ca_file
      client_ca_file: clients.crt
      min_version: TLS12
    basic_auth_users:
      prometheus: $2y$10$…                            # a bcrypt hash: htpasswd -nBC 10 prometheus

This format has no bearer token, so the token is a setting of the pipeline file. Paths in the web configuration are
relative to its folder. An unknown key is an error, because the server would be open if it ignored a misspelled key.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ssl
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from capture.errors import WiretideError
from capture.lazy_dataclasses import dataclass

TLS_KEYS = ("cert_file", "key_file", "client_auth_type", "client_ca_file", "min_version")
SECTIONS = ("tls_server_config", "basic_auth_users")
TLS_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
CLIENT_AUTH = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}

MIN_TOKEN_LENGTH = 16
"""Minimum number of characters of a token."""

MAX_REMEMBERED_CHECKS = 100
"""Maximum number of stored results of password checks. Results are stored, because a bcrypt check takes 0.1 s."""

DUMMY_HASH = b"$2b$10$0pb7mt2h3RkR2P7r7btIYO/kfw.iWm3h7mP4bZooKQ0ZTTyzxUGlq"
"""A hash that is checked for unknown users, so that the response time does not reveal whether a user exists."""


class AccessError(WiretideError):
    """A web configuration or token file is wrong. The user must change the file."""

    status = 2


@dataclass(frozen=True)
class Access:
    """The conditions under which a request is answered. If there are none, every request is answered.

    `tls`: the context of the server, None for plain HTTP. `users`: bcrypt hashes by name. `token`: the bearer token.
    """

    tls: ssl.SSLContext | None = None
    users: Mapping[str, bytes] | None = None
    token: bytes | None = None

    @property
    def is_open(self) -> bool:
        """True if requests need neither a password nor a token.

        Client certificates are not considered: TLS checks them.
        """
        return not self.users and self.token is None

    @property
    def challenge(self) -> str:
        """The value of the header WWW-Authenticate in the answer to a refused request."""
        return 'Basic realm="wiretide", charset="UTF-8"' if self.users else 'Bearer realm="wiretide"'


def read_access(web_config: Path | None, token_file: Path | None) -> Access:
    """Read the web configuration and the token. Raises AccessError if a file is wrong or cannot be read."""
    token = None if token_file is None else read_token(token_file)
    if web_config is None:
        return Access(token=token)
    config = _read_yaml(web_config)
    _check_keys(config, SECTIONS, f"{web_config}")
    tls = None
    if "tls_server_config" in config:
        tls = _tls_context(web_config, config["tls_server_config"])
    users = _users(web_config, config.get("basic_auth_users") or {})
    if tls is None and not users:
        raise AccessError(f"{web_config}: got an empty configuration, expected {' or '.join(SECTIONS)}")
    return Access(tls, users, token)


def _read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise AccessError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise AccessError(f"{path}: got a file that is not text") from error


def read_token(path: Path) -> bytes:
    """Return the token in a file. Raises AccessError if the text is not a token."""
    token = _read_text(path).strip()
    if len(token) < MIN_TOKEN_LENGTH or not token.isascii() or any(character.isspace() for character in token):
        expected = (
            f"one line of at least {MIN_TOKEN_LENGTH} ASCII characters without blanks, such as `openssl rand -hex 32`"
        )
        raise AccessError(f"{path}: got {len(token)} characters, expected {expected}")
    return token.encode()


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        import yaml  # type: ignore[import-untyped]
    except ModuleNotFoundError as error:
        raise AccessError("web_config needs PyYAML and bcrypt: pip install 'wiretide[auth]'") from error
    try:
        config = yaml.safe_load(_read_text(path))
    except yaml.YAMLError as error:
        raise AccessError(f"{path}: got a file that is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(config, dict):
        raise AccessError(f"{path}: got no mapping, expected a mapping with {' or '.join(SECTIONS)}, or both")
    return config


def _check_keys(values: Any, known: tuple[str, ...], where: str) -> None:
    if not isinstance(values, dict):
        raise AccessError(f"{where}: got {values!r}, expected a mapping with {', '.join(known)}")
    if unknown := [str(key) for key in values if key not in known]:
        raise AccessError(f"{where}: {', '.join(unknown)} is not supported; supported: {', '.join(known)}")


def _tls_context(path: Path, values: Any) -> ssl.SSLContext:
    where = f"{path}, tls_server_config"
    _check_keys(values, TLS_KEYS, where)
    files = {}
    for key in ("cert_file", "key_file", *(["client_ca_file"] if "client_ca_file" in values else [])):
        if not isinstance(values.get(key), str):
            raise AccessError(f"{where}: got {key} = {values.get(key)!r}, expected a path")
        files[key] = path.parent / values[key]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _choice(where, "min_version", values.get("min_version", "TLS12"), TLS_VERSIONS)
    try:
        context.load_cert_chain(files["cert_file"], files["key_file"])
        if "client_ca_file" in files:
            context.load_verify_locations(files["client_ca_file"])
    except (OSError, ssl.SSLError) as error:
        names = ", ".join(map(str, files.values()))
        raise AccessError(f"{where}: {names}: cannot be used: {error}") from error
    default = "RequireAndVerifyClientCert" if "client_ca_file" in files else "NoClientCert"
    context.verify_mode = _choice(where, "client_auth_type", values.get("client_auth_type", default), CLIENT_AUTH)
    if context.verify_mode is not ssl.CERT_NONE and "client_ca_file" not in files:
        raise AccessError(f"{where}: got client_auth_type without client_ca_file, expected both")
    return context


def _choice(where: str, key: str, value: Any, choices: Mapping[str, Any]) -> Any:
    if value not in choices:
        raise AccessError(f"{where}: got {key} = {value!r}, expected one of: {', '.join(choices)}")
    return choices[value]


def _users(path: Path, values: Any) -> dict[str, bytes]:
    """Return the hashes by user.

    Each hash is tried once, so that a wrong hash is an error at the start, not at a request.
    """
    if not values:
        return {}
    if not isinstance(values, dict):
        raise AccessError(f"{path}, basic_auth_users: got {values!r}, expected a mapping of names to bcrypt hashes")
    try:
        import bcrypt
    except ModuleNotFoundError as error:
        raise AccessError("basic_auth_users needs bcrypt: pip install 'wiretide[auth]'") from error
    users = {}
    for name, text in values.items():
        users[str(name)] = hashed = str(text).encode()
        try:
            bcrypt.checkpw(b"", hashed)
        except ValueError as error:
            expected = "a bcrypt hash, such as `htpasswd -nBC 10 NAME` prints it"
            raise AccessError(f"{path}, basic_auth_users, {name}: got another text, expected {expected}") from error
    return users


class Guard:
    """Checks the header Authorization of requests. Thread safe.

    One password is checked at a time, so that requests with wrong passwords use at most one core.
    """

    def __init__(self, access: Access) -> None:
        """Create a guard that checks requests against the conditions in `access`."""
        self._access = access
        self._checked: dict[bytes, bool] = {}
        self._lock = Lock()

    def allows(self, header: str | None) -> bool:
        """Return True if a request with this header may be answered."""
        access = self._access
        if access.is_open:
            return True
        scheme, _, value = (header or "").strip().partition(" ")
        if scheme.lower() == "bearer" and access.token is not None:
            return hmac.compare_digest(value.strip().encode("utf-8", "replace"), access.token)
        if scheme.lower() == "basic" and access.users:
            return self._allows_password(value.strip())
        return False

    def _allows_password(self, value: str) -> bool:
        try:
            name, colon, password = base64.b64decode(value, validate=True).partition(b":")
        except (binascii.Error, ValueError):
            return False
        if not colon:
            return False
        users = self._access.users or {}
        expected = users.get(name.decode("utf-8", "replace"))
        key = hashlib.sha256(b"\0".join((name, password, expected or b""))).digest()
        with self._lock:
            if key not in self._checked:
                while len(self._checked) >= MAX_REMEMBERED_CHECKS:
                    del self._checked[next(iter(self._checked))]
                self._checked[key] = self._check(password, expected)
            return self._checked[key]

    @staticmethod
    def _check(password: bytes, expected: bytes | None) -> bool:
        import bcrypt

        # bcrypt uses the first 72 bytes of a password. For longer passwords, new versions raise ValueError.
        is_right = bcrypt.checkpw(password[:72], expected or DUMMY_HASH)
        return is_right and expected is not None
