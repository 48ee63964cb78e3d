"""Access to the metrics server: nothing without a user or a token, over TLS and without, and files that are refused."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from threading import Thread

import bcrypt
import pytest

from dashboards.prometheus import access as access_module
from dashboards.prometheus.access import Access, AccessError, Guard, read_access
from dashboards.prometheus.exporter import Exporter
from dashboards.prometheus.server import Server, serve
from tests.harness.certificates import server_context
from tests.harness.live_pages import live_page

HASH = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
TOKEN = "0123456789abcdef"


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


HEADERS = {
    None: (False, False),
    basic("ann", "secret"): (True, False),
    basic("ann", "wrong"): (False, False),
    basic("ann", ""): (False, False),
    basic("bob", "secret"): (False, False),
    basic("", "secret"): (False, False),
    "Basic": (False, False),
    "Basic %%%": (False, False),
    "Basic " + base64.b64encode(b"ann").decode(): (False, False),
    "Basic " + base64.b64encode(b"\xff\xfe:\xff").decode(): (False, False),
    basic("ann", "x" * 3000): (False, False),
    f"Bearer {TOKEN}": (False, True),
    f"bearer  {TOKEN} ": (False, True),
    f"Bearer {TOKEN}0": (False, False),
    "Bearer": (False, False),
    f"Digest {TOKEN}": (False, False),
    "Bearer \xff": (False, False),
}
"""Headers: allowed for the user ann with the password secret, and for the token."""


@pytest.mark.parametrize("header", HEADERS)
def test_a_header_is_allowed_or_not(header: str | None) -> None:
    by_user, by_token = HEADERS[header]
    users, token = {"ann": HASH.encode()}, TOKEN.encode()
    for _ in range(2):  # the second answer is remembered
        assert Guard(Access(users=users)).allows(header) is by_user
        assert Guard(Access(token=token)).allows(header) is by_token
        assert Guard(Access(users=users, token=token)).allows(header) is (by_user or by_token)
    assert Guard(Access()).allows(header) is True


def test_checks_are_remembered_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_module, "MAX_REMEMBERED_CHECKS", 3)
    guard, calls = Guard(Access(users={"ann": HASH.encode()})), []
    monkeypatch.setattr(bcrypt, "checkpw", lambda password, hashed: calls.append(password) or password == b"secret")
    for password in ("secret", "secret", "a", "b", "c", "d", "secret"):
        assert guard.allows(basic("ann", password)) is (password == "secret")
    assert calls == [b"secret", b"a", b"b", b"c", b"d", b"secret"]


@contextmanager
def served(access: Access) -> Iterator[Server]:
    with serve(Exporter([], []), port=0, access=access) as server:
        yield server


def ask(server: Server, path: str, header: str | None = None, tls: ssl.SSLContext | None = None) -> tuple[int, str]:
    """Return the status and the header WWW-Authenticate."""
    connection = (
        HTTPConnection("localhost", server.port)
        if tls is None
        else HTTPSConnection("localhost", server.port, context=tls)
    )
    with closing(connection):
        connection.request("GET", path, headers={} if header is None else {"Authorization": header})
        answer = connection.getresponse()
        answer.read()
        return answer.status, answer.getheader("WWW-Authenticate", "")


def test_every_path_needs_authentication() -> None:
    with served(Access(users={"ann": HASH.encode()}, token=TOKEN.encode())) as server:
        for path in ("/", "/metrics", "/metrics?name[]=x", "/state", "/../etc/passwd", "//", "/unknown"):
            assert ask(server, path) == (401, 'Basic realm="wiretide", charset="UTF-8"')
            assert ask(server, path, basic("ann", "secret"))[0] in (200, 404)
            assert ask(server, path, f"Bearer {TOKEN}")[0] in (200, 404)
        assert ask(server, "/metrics", f"Bearer {TOKEN}")[0] == 200
    with served(Access(token=TOKEN.encode())) as server:
        assert ask(server, "/") == (401, 'Bearer realm="wiretide"')


def test_the_live_page_needs_authentication_too(tmp_path: Path) -> None:
    with live_page(tmp_path, "total", served=False) as page:
        exporter, site = Exporter(page.plans.values(), []), page.site
        with serve(exporter, port=0, site=site, access=Access(token=TOKEN.encode())) as server:
            for path in ("/", "/page.js", "/api/state", "/api/events", "/metrics"):
                assert ask(server, path)[0] == 401
            assert ask(server, "/", f"Bearer {TOKEN}")[0] == 200


def test_many_requests_with_wrong_passwords_leave_the_server_usable() -> None:
    with served(Access(users={"ann": HASH.encode()})) as server:
        found: list[int] = []
        threads = [
            Thread(target=lambda number=number: found.append(ask(server, "/", basic("ann", str(number)))[0]))
            for number in range(12)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [401] * 12
        assert ask(server, "/metrics", basic("ann", "secret"))[0] == 200


def test_tls_serves_only_tls(tmp_path: Path) -> None:
    server_context(tmp_path)
    (tmp_path / "web.yml").write_text(
        f"tls_server_config: {{cert_file: certificate.pem, key_file: key.pem}}\nbasic_auth_users: {{ann: {HASH}}}\n"
    )
    client = ssl.create_default_context(cafile=str(tmp_path / "certificate.pem"))
    with served(read_access(tmp_path / "web.yml", None)) as server:
        assert server.url.startswith("https://127.0.0.1:")
        assert ask(server, "/metrics", tls=client)[0] == 401
        assert ask(server, "/metrics", basic("ann", "secret"), client)[0] == 200
        with pytest.raises((ConnectionError, ssl.SSLError)):
            ask(server, "/metrics")
        distrusting = ssl.create_default_context()
        with pytest.raises(ssl.SSLError):
            ask(server, "/metrics", tls=distrusting)
        assert ask(server, "/metrics", basic("ann", "secret"), client)[0] == 200


def test_client_certificates_are_required(tmp_path: Path) -> None:
    server_context(tmp_path)
    (tmp_path / "web.yml").write_text(
        "tls_server_config: {cert_file: certificate.pem, key_file: key.pem, client_ca_file: certificate.pem, "
        "min_version: TLS13}\n"
    )
    client = ssl.create_default_context(cafile=str(tmp_path / "certificate.pem"))
    with served(read_access(tmp_path / "web.yml", None)) as server:
        with pytest.raises((ConnectionError, ssl.SSLError)):
            ask(server, "/metrics", tls=client)
        client.load_cert_chain(tmp_path / "certificate.pem", tmp_path / "key.pem")
        assert ask(server, "/metrics", tls=client)[0] == 200


WRONG = {
    "tls_server_config: [": "not YAML",
    "[]": "got no mapping",
    "{}": "got an empty configuration",
    "basic_auth_users: {ann: plain}": "ann: got another text, expected a bcrypt hash",
    "basic_auth_users: [ann]": "expected a mapping of names to bcrypt hashes",
    "http_server_config: {http2: true}": "http_server_config is not supported; supported: tls_server_config",
    "tls_server_config: {cert_file: a}": "got key_file = None, expected a path",
    "tls_server_config: {cert_file: a, key_file: b}": "cannot be used",
    "tls_server_config: {cert: a}": "cert is not supported",
    "tls_server_config: {cert_file: certificate.pem, key_file: key.pem, min_version: TLS10}": "expected one of: TLS12",
    "tls_server_config: {cert_file: certificate.pem, key_file: key.pem, client_auth_type: Maybe}": "client_auth_type",
    "tls_server_config: {cert_file: certificate.pem, key_file: key.pem, client_auth_type: VerifyClientCertIfGiven}": (
        "without client_ca_file"
    ),
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_configuration_is_refused(text: str, tmp_path: Path) -> None:
    server_context(tmp_path)
    (tmp_path / "web.yml").write_text(text)
    with pytest.raises(AccessError) as raised:
        read_access(tmp_path / "web.yml", None)
    assert WRONG[text] in str(raised.value)
    assert str(tmp_path / "web.yml") in str(raised.value)


@pytest.mark.parametrize("text", ["", "short", "with a blank 0123456789", "ä" * 20])
def test_a_weak_token_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(text)
    with pytest.raises(AccessError, match="at least 16 ASCII characters"):
        read_access(None, tmp_path / "token")


def test_files_that_cannot_be_read_are_errors(tmp_path: Path) -> None:
    for files in ((tmp_path / "none", None), (None, tmp_path / "none")):
        with pytest.raises(AccessError, match="none: cannot be read"):
            read_access(*files)


def test_hashes_of_htpasswd_are_accepted(tmp_path: Path) -> None:
    """The prefix $2y$ of Apache's program is that of the documents of Prometheus."""
    apache = HASH.replace("$2b$", "$2y$")
    (tmp_path / "web.yml").write_text(f"basic_auth_users: {{ann: {apache}}}\n")
    access = read_access(tmp_path / "web.yml", None)
    assert Guard(access).allows(basic("ann", "secret"))
