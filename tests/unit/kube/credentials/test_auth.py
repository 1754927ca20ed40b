"""Credentials of every kind, shown to servers on loopback: a scripted API server, one with TLS, a login server."""

from __future__ import annotations

import base64
import datetime as dt
import json
import os
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from aiohttp import web

from runner.base.credentials import auth
from runner.base.credentials.auth import Credentials, HostEnvironment
from runner.base.pki import Authority
from runner.core.kube.client import Client
from runner.values.errors import ApiUnavailableError, ConfigError
from tests.unit.kube.scripted import KubeConfigFile

PLUGIN = """
import json, os, sys
count = open(sys.argv[1], "a+"); count.write("."); count.close()
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
info["status"] = json.loads(os.environ["STATUS"])
print(json.dumps(info))
"""
Load: TypeAlias = Callable[..., Awaitable[Credentials]]

V1 = "client.authentication.k8s.io/v1"


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def around(tmp_path: Path, **environ: str) -> HostEnvironment:
    return HostEnvironment(environ, tmp_path / "home", tmp_path / "serviceaccount")


@pytest.fixture
def load(write_kubeconfig: KubeConfigFile, tmp_path: Path) -> Load:
    """Load the credentials of a user, by default of a server without TLS."""

    async def of(user: dict[str, Any] | None = None, server: str = "http://x", **cluster: Any) -> Credentials:
        path = write_kubeconfig(server, user=user or {}, **cluster)
        return await auth.load(str(path), None, around(tmp_path))

    return of


def service_account(tmp_path: Path, authority: bytes = b"") -> Path:
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text("pod-token")
    (folder / "ca.crt").write_bytes(authority or Authority.create("ca").pair.certificate)
    (folder / "namespace").write_text("pod-space")
    return folder


class Plugin:
    """A credential plugin that answers with `status` and counts its runs."""

    def __init__(self, tmp_path: Path) -> None:
        self._script = tmp_path / "plugin.py"
        self._script.write_text(PLUGIN)
        self._count = tmp_path / "count"

    def user(self, status: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        section = {
            "apiVersion": V1,
            "command": sys.executable,
            "args": [str(self._script), str(self._count)],
            "env": [{"name": "STATUS", "value": json.dumps(status)}],
        }
        return {"exec": {**section, **more}}

    @property
    def runs(self) -> int:
        return len(self._count.read_text())


# Where credentials are looked for


async def test_a_given_kubeconfig_comes_first(write_kubeconfig: KubeConfigFile, tmp_path: Path) -> None:
    given, named = write_kubeconfig("http://given"), write_kubeconfig("http://named", name="named")
    found = await auth.load(str(given), None, around(tmp_path, KUBECONFIG=str(named)))
    assert found.base_url == "http://given"


async def test_then_the_files_of_kubeconfig_those_that_exist(write_kubeconfig: KubeConfigFile, tmp_path: Path) -> None:
    service_account(tmp_path)
    named = write_kubeconfig("http://named/")
    files = f"{tmp_path}/missing:{named}:"
    found = await auth.load(None, None, around(tmp_path, KUBECONFIG=files, KUBERNETES_SERVICE_HOST="10.0.0.1"))
    assert found.base_url == "http://named"


async def test_then_the_pods_service_account(write_kubeconfig: KubeConfigFile, tmp_path: Path) -> None:
    service_account(tmp_path)
    (tmp_path / "home" / ".kube").mkdir(parents=True)
    write_kubeconfig("http://home").rename(tmp_path / "home" / ".kube" / "config")
    found = await auth.load(None, None, around(tmp_path, KUBERNETES_SERVICE_HOST="fd00::1"))
    assert (found.base_url, found.namespace) == ("https://[fd00::1]:443", "pod-space")
    assert (await found.headers())["Authorization"] == "Bearer pod-token"
    with_context = around(tmp_path, KUBERNETES_SERVICE_HOST="10.0.0.1")
    assert (await auth.load(None, "c", with_context)).base_url == "http://home"
    assert (await auth.load(None, None, around(tmp_path))).base_url == "http://home"


async def test_without_any_every_place_that_was_tried_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        await auth.load(None, None, around(tmp_path, KUBECONFIG="/nope"))
    for place in ("--kubeconfig", "/nope", "serviceaccount", ".kube/config"):
        assert place in str(caught.value)


# What a server sees of them


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ({}, None),
        ({"token": "t"}, "Bearer t"),
        ({"username": "u", "password": "p"}, "Basic dTpw"),
    ],
)
async def test_fixed_credentials(load: Load, user: dict[str, Any], expected: str | None) -> None:
    found = await load(user)
    assert (await found.headers()).get("Authorization") == expected


async def test_impersonation_is_passed_on(load: Load) -> None:
    user = {"token": "t", "as": "jane", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": {"team": ["x"]}}
    headers = await (await load(user)).headers()
    assert headers["Impersonate-User"] == "jane"
    assert headers["Impersonate-Uid"] == "7"
    assert headers.getall("Impersonate-Group") == ["a", "b"]
    assert headers["Impersonate-Extra-team"] == "x"


async def test_extra_fields_of_an_impersonated_user_may_have_names_that_no_header_permits(load: Load) -> None:
    extra = {"acme.com/project": ["x"], "team name%": ["y", "z"], "größe": ["w"]}
    user = {"token": "t", "as": "jane", "as-user-extra": extra}
    headers = await (await load(user)).headers()
    found = [(name, value) for name, value in headers.items() if name.startswith("Impersonate-Extra-")]
    assert found == [
        ("Impersonate-Extra-acme.com%2Fproject", "x"),
        ("Impersonate-Extra-team%20name%25", "y"),
        ("Impersonate-Extra-team%20name%25", "z"),
        ("Impersonate-Extra-gr%C3%B6%C3%9Fe", "w"),
    ]


async def test_credentials_return_their_secret_values(load: Load, tmp_path: Path) -> None:
    user = {"token": "t0ken", "client-key-data": encoded(b"the key"), "username": "u", "password": "passw0rd"}
    found = await load(user)
    assert sorted(found.secret_values()) == ["passw0rd", "t0ken", "the key"]
    (tmp_path / "token").write_text("from the file\n")
    found = await load({"tokenFile": "token"})
    assert found.secret_values() == []
    await found.headers()
    assert found.secret_values() == ["from the file"]


async def test_a_token_file_that_vanished_leaves_its_last_content_in_use(load: Load, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one\n")
    found = await load({"tokenFile": "token"})
    assert (await found.headers())["Authorization"] == "Bearer one"
    (tmp_path / "token").unlink()
    await found.refresh()
    assert (await found.headers())["Authorization"] == "Bearer one"


async def test_a_token_file_that_never_was_is_named(load: Load) -> None:
    found = await load({"tokenFile": "token"})
    with pytest.raises(ApiUnavailableError, match="token cannot be read"):
        await found.headers()


async def test_a_file_that_cannot_be_read_again_leaves_the_old_credentials_in_use(load: Load, tmp_path: Path) -> None:
    found = await load({"token": "t"})
    (tmp_path / "config").write_text("half: [")
    await found.refresh()
    assert (await found.headers())["Authorization"] == "Bearer t"


async def test_without_room_for_temporary_files_the_old_credentials_stay_in_use_until_there_is_some(
    load: Load, write_kubeconfig: KubeConfigFile, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    jane = authority.issue("jane")
    user = {"client-certificate-data": encoded(jane.certificate), "client-key-data": encoded(jane.key)}
    found = await load({"token": "t"}, "https://x")
    write_kubeconfig("https://x", user=user)
    monkeypatch.setattr(auth, "_REFRESH_INTERVAL", 0.0)
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    await found.refresh()
    assert (await found.headers())["Authorization"] == "Bearer t"
    monkeypatch.setattr(tempfile, "tempdir", None)
    before = found.ssl
    await found.refresh()
    assert found.ssl is not before
    assert "Authorization" not in await found.headers()


async def test_a_plugins_certificate_is_read_again_once_there_is_room_for_temporary_files(
    load: Load, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jane = authority.issue("jane")
    plugin = Plugin(tmp_path)
    found = await load(
        plugin.user({"clientCertificateData": jane.certificate.decode(), "clientKeyData": jane.key.decode()}),
        "https://x",
    )
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    with pytest.raises(ApiUnavailableError, match="/nowhere"):
        await found.headers()
    monkeypatch.setattr(tempfile, "tempdir", None)
    await found.headers()
    assert plugin.runs == 2


@pytest.mark.parametrize("proxy", ["http://proxy:port", "http://", "socks5://proxy"])
def test_an_invalid_proxy_is_an_error_that_names_it(proxy: str) -> None:
    with pytest.raises(ConfigError, match=f"proxy '{proxy}'"):
        auth.choose_proxy({"server": "https://x"}, {"HTTPS_PROXY": proxy})


def test_a_user_without_a_home_has_a_host_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    assert HostEnvironment.of_process().home == Path("~")


async def test_refreshes_in_quick_succession_read_the_credentials_once(
    load: Load, write_kubeconfig: KubeConfigFile
) -> None:
    found = await load({"token": "old"})
    write_kubeconfig("http://x", user={"token": "new"})
    await found.refresh()
    assert (await found.headers())["Authorization"] == "Bearer new"
    write_kubeconfig("http://x", user={"token": "newer"})
    await found.refresh()
    assert (await found.headers())["Authorization"] == "Bearer new"


# Credential plugins


@pytest.mark.lengthy
async def test_a_plugin_is_run_until_its_token_ends(load: Load, tmp_path: Path) -> None:
    plugin = Plugin(tmp_path)
    soon, late = (dt.datetime.now(dt.UTC) + dt.timedelta(seconds=s) for s in (5, 3600))
    for expires, runs in ((late.strftime("%Y-%m-%dT%H:%M:%SZ"), 1), (soon.isoformat(), 3), (None, 4)):
        status = {"token": "t", **({"expirationTimestamp": expires} if expires else {})}
        found = await load(plugin.user(status))
        for _ in range(2):
            assert (await found.headers())["Authorization"] == "Bearer t"
        assert plugin.runs == runs


async def test_a_plugin_is_run_again_when_its_token_is_refused(load: Load, tmp_path: Path) -> None:
    plugin = Plugin(tmp_path)
    found = await load(plugin.user({"token": "t"}))
    await found.headers()
    await found.refresh()
    await found.headers()
    assert plugin.runs == 2


async def test_a_plugin_gets_the_cluster_on_request(load: Load) -> None:
    echo = (
        "import json, os; i = json.loads(os.environ['KUBERNETES_EXEC_INFO']); "
        "print(json.dumps({**i, 'status': {'token': i['spec']['cluster']['server']}}))"
    )
    user = {"exec": {"apiVersion": V1, "command": sys.executable, "args": ["-c", echo], "provideClusterInfo": True}}
    found = await load(user, "http://server")
    assert (await found.headers())["Authorization"] == "Bearer http://server"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import sys; sys.exit('no luck')", r"failed with exit code 1: no luck"),
        ("print('hello')", "did not print an ExecCredential"),
        ('print(\'{"apiVersion": "v0", "status": {"token": "t"}}\')', "did not print a credential of"),
    ],
)
async def test_a_plugin_that_fails_is_quoted(load: Load, code: str, message: str) -> None:
    user = {"exec": {"apiVersion": V1, "command": sys.executable, "args": ["-c", code]}}
    found = await load(user)
    with pytest.raises(ApiUnavailableError, match=message):
        await found.headers()


@pytest.mark.lengthy
@pytest.mark.parametrize(
    ("status", "message"),
    [
        ({"token": "t", "expirationTimestamp": "tomorrow"}, "'tomorrow' is not a time"),
        ({"clientCertificateData": "x", "clientKeyData": "x"}, "cannot be used"),
    ],
)
async def test_an_invalid_answer_of_a_plugin_is_an_error_that_quotes_the_problem(
    load: Load, tmp_path: Path, status: dict[str, Any], message: str
) -> None:
    plugin = Plugin(tmp_path)
    found = await load(plugin.user(status), "https://x")
    for runs in (1, 2):
        with pytest.raises(ApiUnavailableError, match=message):
            await found.headers()
        assert plugin.runs == runs


async def test_a_plugin_that_is_not_installed_is_named_with_its_hint(load: Load) -> None:
    user = {"exec": {"apiVersion": V1, "command": "no-such-plugin", "installHint": "get it at example.com"}}
    found = await load(user)
    with pytest.raises(ApiUnavailableError, match=r"no-such-plugin.*get it at example.com"):
        await found.headers()


@pytest.mark.parametrize(
    ("user", "message"),
    [
        ({"exec": {"apiVersion": V1}}, "no command"),
        ({"exec": {"apiVersion": "client.authentication.k8s.io/v1alpha1", "command": "x"}}, "update the plugin"),
        ({"exec": {"apiVersion": V1, "command": "x", "interactiveMode": "Always"}}, "no terminal|has none"),
        ({"exec": {"apiVersion": V1, "command": "x", "env": [{"name": "A"}]}}, "name and value"),
        ({"auth-provider": {"name": "gcp"}}, "'gcp' is not supported"),
        (
            {"auth-provider": {"name": "oidc", "config": {"id-token": "t"}}},
            r"'oidc'.*\(exec\), such as kubelogin",
        ),
        ({"client-certificate-data": encoded(b"x")}, "must be given together"),
        ({"client-certificate-data": encoded(b"x"), "client-key-data": encoded(b"x")}, "cannot be used"),
        ({"client-certificate-data": "%"}, "base64"),
    ],
)
async def test_users_that_can_never_work_are_refused_at_once(load: Load, user: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        await load(user, "https://x")


async def test_an_authority_that_is_no_certificate_is_an_error_that_names_it(load: Load) -> None:
    authority = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"
    with pytest.raises(ConfigError, match="certificate-authority"):
        await load({}, "https://x", **{"certificate-authority-data": encoded(authority)})


# TLS


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.create("test")


@pytest.fixture
async def tls_server(authority: Authority, tmp_path: Path) -> AsyncIterator[str]:
    """A server that requires no certificate and returns the name in the client's certificate."""
    server, pair = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), tmp_path / "server.pem"
    issued = authority.issue("server", hosts=["127.0.0.1", "api.internal"])
    pair.write_bytes(issued.certificate + issued.key)
    server.load_cert_chain(pair)
    server.load_verify_locations(cadata=authority.pair.certificate.decode())
    server.verify_mode = ssl.CERT_OPTIONAL

    async def whoami(request: web.Request) -> web.Response:
        assert request.transport is not None
        shown = request.transport.get_extra_info("peercert") or {}
        names = [value for part in shown.get("subject", ()) for name, value in part if name == "commonName"]
        return web.json_response({"user": names, "authorization": request.headers.get("Authorization")})

    app = web.Application()
    app.router.add_get("/whoami", whoami)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server).start()
    yield f"https://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def whoami(credentials: Credentials) -> dict[str, Any]:
    async with Client(credentials) as client:
        return await client.request("GET", "/whoami")


async def test_a_client_certificate_is_shown(load: Load, tls_server: str, authority: Authority) -> None:
    jane = authority.issue("jane")
    user = {"client-certificate-data": encoded(jane.certificate), "client-key-data": encoded(jane.key)}
    cluster = {"certificate-authority-data": encoded("# Firma Müller\n".encode() + authority.pair.certificate)}
    found = await load(user, tls_server, **cluster)
    assert (await whoami(found))["user"] == ["jane"]


async def test_a_plugins_certificate_is_shown(
    load: Load, tls_server: str, authority: Authority, tmp_path: Path
) -> None:
    jane = authority.issue("jane")
    status = {"clientCertificateData": jane.certificate.decode(), "clientKeyData": jane.key.decode()}
    cluster = {"certificate-authority-data": encoded(authority.pair.certificate)}
    found = await load(Plugin(tmp_path).user(status), tls_server, **cluster)
    assert (await whoami(found))["user"] == ["jane"]


async def test_verification_can_be_turned_off(load: Load, tls_server: str) -> None:
    found = await load({"token": "t"}, tls_server, **{"insecure-skip-tls-verify": True})
    assert (await whoami(found))["authorization"] == "Bearer t"


async def test_the_servers_name_can_be_given(load: Load, tls_server: str, authority: Authority) -> None:
    cluster = {"certificate-authority-data": encoded(authority.pair.certificate)}
    named = await load({}, tls_server, **cluster, **{"tls-server-name": "api.internal"})
    assert (await whoami(named))["user"] == []
    wrong = await load({}, tls_server, **cluster, **{"tls-server-name": "elsewhere"})
    with pytest.raises(ApiUnavailableError, match="elsewhere"):
        await whoami(wrong)


async def test_a_renewed_authority_comes_into_use_without_a_restart(
    tls_server: str, authority: Authority, tmp_path: Path
) -> None:
    folder = service_account(tmp_path)
    port = tls_server.rpartition(":")[2]
    pod = around(tmp_path, KUBERNETES_SERVICE_HOST="127.0.0.1", KUBERNETES_SERVICE_PORT=port)
    found = await auth.load(None, None, pod)
    (folder / "ca.crt").write_bytes(authority.pair.certificate)
    with pytest.raises(ApiUnavailableError, match="certificate"):
        await whoami(found)
    assert (await whoami(found))["authorization"] == "Bearer pod-token"
