"""The client against a scripted API server (the I/O seam)."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from structlog.testing import capture_logs

from runner.base.credentials import auth
from runner.base.credentials.auth import HostEnvironment
from runner.base.pki import Authority
from runner.core.kube import answers
from runner.core.kube.client import EVERYTHING, Client, ClientLimits, PatchType
from runner.core.kube.discovery import ApiResource
from runner.values import errors
from runner.values.objects import GVK, ObjectKey
from tests.kit.wait import patience, until
from tests.unit.kube.scripted import Api, KubeConfigFile

WIDGETS = ApiResource(GVK("example.com", "v1", "Widget"), "widgets", True, frozenset(), frozenset())  # noqa: FBT003 - as the fields stand
PATH = "/apis/example.com/v1/namespaces/ns/widgets/a"
KEY = ObjectKey("ns", "a")


async def test_a_request_has_credentials_user_agent_and_media_type(api: Api, client: Client) -> None:
    api.on(PATH, api.reply({"kind": "Widget"}))
    assert await client.get(WIDGETS, KEY) == {"kind": "Widget"}
    headers = api.of(PATH)[0].headers
    assert headers["Authorization"] == "Bearer t0ken"
    assert headers["User-Agent"].startswith("ansible-operator/")
    assert headers["Accept"] == "application/json"


@pytest.mark.parametrize("kind", list(PatchType))
async def test_a_patch_names_its_type(api: Api, client: Client, kind: PatchType) -> None:
    api.on(f"{PATH}/status", api.reply({"kind": "Widget"}))
    await client.patch(WIDGETS, KEY, {"a": 1}, content_type=kind, subresource="status", params={"fieldManager": "x"})
    (seen,) = api.of(f"{PATH}/status")
    assert (seen.method, seen.headers["Content-Type"], seen.query) == ("PATCH", kind.value, {"fieldManager": "x"})
    assert orjson.loads(seen.body) == {"a": 1}


async def test_a_deletion_can_insist_on_the_object_it_means(api: Api, client: Client) -> None:
    api.on(PATH, api.reply({"kind": "Status"}))
    await client.delete(WIDGETS, KEY, uid="u-1")
    assert orjson.loads(api.of(PATH)[0].body) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Background",
        "preconditions": {"uid": "u-1"},
    }


async def test_a_call_can_impersonate_a_user_and_require_a_version(api: Api, client: Client) -> None:
    api.on(PATH, api.reply({"kind": "Status"}), api.reply({"kind": "Widget"}))
    await client.delete(WIDGETS, KEY, uid="u-1", version="7", user="system:serviceaccount:a:b")
    await client.get(WIDGETS, KEY)
    first, second = api.of(PATH)
    assert first.headers["Impersonate-User"] == "system:serviceaccount:a:b"
    assert orjson.loads(first.body)["preconditions"] == {"uid": "u-1", "resourceVersion": "7"}
    assert "Impersonate-User" not in second.headers


async def test_items_of_a_list_get_the_type_that_the_list_has(api: Api, client: Client) -> None:
    api.on("/apis/example.com/v1/widgets", api.page(3, {"metadata": {"name": "a"}}, cont="more"))
    found = await client.list_page(WIDGETS, "", EVERYTHING, 10, "")
    assert found.items == [{"metadata": {"name": "a"}, "apiVersion": "example.com/v1", "kind": "Widget"}]
    assert (found.resource_version, found.cont) == ("3", "more")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (400, errors.ApiError),
        (401, errors.UnauthorizedError),
        (403, errors.ForbiddenError),
        (404, errors.NotFoundError),
        (409, errors.ConflictError),
        (410, errors.GoneError),
        (422, errors.InvalidError),
        (429, errors.ThrottledError),
        (500, errors.ServerError),
        (503, errors.ServerError),
    ],
)
async def test_each_status_has_its_error(api: Api, client: Client, code: int, expected: type[errors.ApiError]) -> None:
    api.on(PATH, api.refuse(code, "TheReason", "the message"))
    with pytest.raises(expected) as caught:
        await client.get(WIDGETS, KEY)
    assert type(caught.value) is expected
    assert (caught.value.status, caught.value.reason) == (code, "TheReason")
    assert "the message" in str(caught.value)
    assert f"GET {PATH}" in str(caught.value)


async def test_an_error_without_a_status_object_is_quoted(api: Api, client: Client) -> None:
    api.on(PATH, api.reply(b"<h1>Bad Gateway</h1>", 502))
    with pytest.raises(errors.ServerError, match="Bad Gateway"):
        await client.get(WIDGETS, KEY)


async def test_a_404_that_is_not_about_the_object_is_not_its_absence(api: Api, client: Client) -> None:
    api.on(PATH, api.reply(b"404 page not found\n", 404))
    with pytest.raises(errors.KindNotFoundError, match="404 page not found") as caught:
        await client.get(WIDGETS, KEY)
    assert not isinstance(caught.value, errors.NotFoundError)


async def test_an_answer_that_is_not_a_json_object_is_an_error(api: Api, client: Client) -> None:
    for body in (b"<h1>Welcome</h1>", b"[]", b""):
        api.on(PATH, api.reply(body))
        with pytest.raises(errors.ApiUnavailableError, match=r"is not (a )?JSON"):
            await client.get(WIDGETS, KEY)


async def test_redirects_are_not_followed(api: Api, client: Client) -> None:
    api.on(PATH, api.reply(b"", 302, Location="http://127.0.0.1:1/"))
    with pytest.raises(errors.ApiError):
        await client.get(WIDGETS, KEY)


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH"])
async def test_a_throttled_request_is_retried_after_the_delay_of_the_server(
    api: Api, client: Client, method: str
) -> None:
    throttled, away = api.refuse(429, "TooManyRequests", Retry_After="7"), api.refuse(503, "x", Retry_After="1")
    api.on(PATH, throttled, away, api.reply({"kind": "Widget"}))
    assert await client.request(method, PATH) == {"kind": "Widget"}
    assert len(api.of(PATH)) == 3


@pytest.mark.lengthy
async def test_patience_with_throttling_ends(api: Api, client: Client) -> None:
    api.on(PATH, api.refuse(429, "TooManyRequests", Retry_After="3"))
    with pytest.raises(errors.ThrottledError) as caught:
        await client.get(WIDGETS, KEY)
    assert caught.value.retry_after == 3
    assert len(api.of(PATH)) == ClientLimits().attempts


async def test_a_server_error_without_a_waiting_time_is_the_callers_to_judge(api: Api, client: Client) -> None:
    api.on(PATH, api.refuse(500, "InternalError"))
    with pytest.raises(errors.ServerError):
        await client.request("POST", PATH, body={})
    assert len(api.of(PATH)) == 1


async def test_a_kept_connection_that_turns_out_closed_costs_a_read_nothing(api: Api, client: Client) -> None:
    api.on(PATH, api.reply({"kind": "Widget"}), api.abort, api.reply({"kind": "Widget"}))
    await client.get(WIDGETS, KEY)
    assert await client.get(WIDGETS, KEY) == {"kind": "Widget"}
    first, second, third = api.of(PATH)
    assert first.peer == second.peer != third.peer


async def test_a_write_that_may_have_arrived_is_not_sent_again(api: Api, client: Client) -> None:
    api.on(PATH, api.reply({"kind": "Widget"}), api.abort)
    await client.get(WIDGETS, KEY)
    with pytest.raises(errors.ApiUnavailableError):
        await client.request("PATCH", PATH, body={})
    assert len(api.of(PATH)) == 2


@pytest.mark.parametrize(
    ("server", "cause", "advice"),
    [
        ("http://127.0.0.1:9", "connection refused", "check that the API server runs"),
        ("https://127.0.0.1:9", "connection refused", "check that the API server runs"),
        ("https://nowhere.invalid:6443", "the host name cannot be resolved", "and the DNS"),
    ],
)
async def test_a_failed_connection_has_its_cause_and_the_next_step_in_words(
    write_kubeconfig: KubeConfigFile, tmp_path: Path, server: str, cause: str, advice: str
) -> None:
    credentials = await auth.load(str(write_kubeconfig(server)), None, HostEnvironment({}, tmp_path))
    async with Client(credentials) as client:
        with pytest.raises(errors.ApiUnavailableError) as caught:
            await client.request("GET", "/version")
    assert str(caught.value) == f"GET /version: {server}: {cause}"
    assert advice in answers.advice(caught.value.__cause__)


async def test_a_certificate_of_an_unknown_authority_is_named_as_the_cause(
    write_kubeconfig: KubeConfigFile, tmp_path: Path
) -> None:
    pair = Authority.create("unknown").issue("api", hosts=["127.0.0.1"])
    (tmp_path / "pair.pem").write_bytes(pair.certificate + pair.key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "pair.pem")
    async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=context) as server:
        path = write_kubeconfig(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async with Client(await auth.load(str(path), None, HostEnvironment({}, tmp_path))) as client:
            with pytest.raises(errors.ApiUnavailableError, match="the certificate is not accepted: ") as caught:
                await client.request("GET", "/version")
    assert "unable to get local issuer certificate" in str(caught.value)
    assert "certificate-authority" in answers.advice(caught.value.__cause__)


async def test_a_connection_closed_by_the_server_is_an_error_that_contains_the_cause(api: Api, client: Client) -> None:
    api.on("/version", api.abort)
    with pytest.raises(errors.ApiUnavailableError, match=r": the server closed the connection$"):
        await client.request("POST", "/version")


@pytest.mark.lengthy
async def test_every_call_ends_in_time(api: Api, client: Client, write_kubeconfig: KubeConfigFile) -> None:
    api.on(PATH, api.hang)
    async with Client(client.credentials, ClientLimits(total=0.1)) as hasty:
        for method in ("GET", "PATCH", "DELETE"):
            with pytest.raises(errors.ApiUnavailableError, match="did not respond in time"):
                await hasty.request(method, PATH, body={})


async def test_an_observer_receives_each_call_and_no_status_without_a_response(
    api: Api, write_kubeconfig: KubeConfigFile, tmp_path: Path
) -> None:
    seen: list[tuple[str, str, int]] = []
    api.on("/version", api.reply({"kind": "Status"}, 403))
    for url in (api.url, "http://127.0.0.1:9"):
        credentials = await auth.load(str(write_kubeconfig(url)), None, HostEnvironment({}, tmp_path))
        async with Client(
            credentials, noted=lambda method, path, _, __, status, ___: seen.append((method, path, status))
        ) as client:
            with pytest.raises((errors.ApiError, errors.ApiUnavailableError)):
                await client.request("GET", "/version")
    assert seen == [("GET", "/version", 403), ("GET", "/version", 0)]


async def test_a_refused_token_is_read_again_once(api: Api, write_kubeconfig: KubeConfigFile, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    path = write_kubeconfig(api.url, user={"tokenFile": "token"})
    api.on(PATH, api.reply({}), api.refuse(401, "Unauthorized"), api.reply({}), api.refuse(401, "Unauthorized"))
    async with Client(await auth.load(str(path), None, HostEnvironment({}, tmp_path))) as client:
        await client.get(WIDGETS, KEY)
        token.write_text("new\n")
        await client.get(WIDGETS, KEY)
        assert [seen.headers["Authorization"] for seen in api.of(PATH)] == ["Bearer old", "Bearer old", "Bearer new"]
        with pytest.raises(errors.UnauthorizedError):
            await client.get(WIDGETS, KEY)


async def test_a_warning_is_logged_once(api: Api, client: Client) -> None:
    api.on(PATH, api.reply({}, Warning='299 - "v1beta1 is \\"old\\"", 299 - "another"'))
    with capture_logs() as lines:
        await client.get(WIDGETS, KEY)
        await client.get(WIDGETS, KEY)
    assert [line["warning"] for line in lines] == ['v1beta1 is \\"old\\"', "another"]


async def test_watches_keep_no_call_waiting(api: Api, client: Client) -> None:
    api.on("/watch", api.stream({"n": 1}, "stay"))
    api.on(PATH, api.reply({}))
    async with Client(client.credentials, ClientLimits(connections=1)) as narrow, asyncio.timeout(patience()):

        async def watch() -> None:
            async with narrow.stream("/watch", {}, idle=60) as lines:
                async for _ in lines:
                    pass

        watches = [asyncio.create_task(watch()) for _ in range(50)]
        await until(lambda: len(api.of("/watch")) == 50)
        await narrow.get(WIDGETS, KEY)
        for task in watches:
            task.cancel()
        await asyncio.gather(*watches, return_exceptions=True)


async def test_a_stream_that_falls_silent_ends_with_an_error(api: Api, client: Client) -> None:
    api.on("/watch", api.stream({"n": 1}, "stay"))
    async with client.stream("/watch", {}, idle=1.0) as lines:  # also for the head
        assert await anext(lines) == b'{"n":1}'
        with pytest.raises(errors.ApiUnavailableError):
            await anext(lines)


async def test_a_proxy_of_the_kubeconfig_is_used(api: Api, write_kubeconfig: KubeConfigFile, tmp_path: Path) -> None:
    path = write_kubeconfig("http://api.invalid", **{"proxy-url": api.url})
    api.on("/version", api.reply({"major": "1"}))
    async with Client(await auth.load(str(path), None, HostEnvironment({}, tmp_path))) as client:
        assert await client.request("GET", "/version") == {"major": "1"}
    assert api.seen[0].headers["Host"] == "api.invalid"


BEGIN = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{}\n\r\n"


class Silent:
    """Begins a watch, and then neither sends nor reads: it never answers the end of TLS."""

    def __init__(self, authority: Authority, folder: Path) -> None:
        pair = authority.issue("api", hosts=["127.0.0.1"])
        (folder / "pair.pem").write_bytes(pair.certificate + pair.key)
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(folder / "pair.pem")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        self.url = f"https://127.0.0.1:{self._listener.getsockname()[1]}"

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with self._context.wrap_socket(connection, server_side=True) as wrapped:
            wrapped.recv(65536)
            wrapped.sendall(BEGIN)
            self._done.wait()

    def close(self) -> None:
        self._done.set()
        self._thread.join()
        self._listener.close()


@pytest.fixture
def authority() -> Authority:
    return Authority.create("test")


@pytest.fixture
def silent(authority: Authority, tmp_path: Path) -> Iterator[Silent]:
    server = Silent(authority, tmp_path)
    yield server
    server.close()


def connections_to(port: int) -> set[str]:
    """The sockets of this process that are connected to a port on loopback.

    The kernel can list one twice, if others come and go meanwhile.
    """
    inodes = set()
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # another thread closed it
            inodes.add(str(each.readlink()))
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return {row[1] for row in rows if row[2].endswith(f":{port:04X}") and f"socket:[{row[9]}]" in inodes}


async def test_no_connection_outlives_the_client_whatever_the_peer_does(
    silent: Silent, authority: Authority, write_kubeconfig: KubeConfigFile, tmp_path: Path
) -> None:
    trusted = base64.b64encode(authority.pair.certificate).decode()
    path = write_kubeconfig(silent.url, user={"token": "t0ken"}, **{"certificate-authority-data": trusted})
    port = int(silent.url.rpartition(":")[2])
    async with Client(await auth.load(str(path), None, HostEnvironment({}, tmp_path))) as client:
        async with client.stream("/apis", {"watch": "true"}, idle=60.0) as lines:
            assert await anext(lines) == b"{}"
            assert len(connections_to(port)) == 1
        # TLS' own end is on its way, and the peer does not answer it.
        await asyncio.sleep(0)
    assert connections_to(port) == set()


async def test_a_client_used_outside_its_block_is_a_mistake(client: Client) -> None:
    with pytest.raises(RuntimeError):
        await Client(client.credentials).request("GET", "/version")
