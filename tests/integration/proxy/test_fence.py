"""A run whose object may be another replica's: what it writes is refused, also what is on its way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from tests.integration.proxy.bed import Operating


async def test_writes_are_refused_after_the_lease_is_lost_and_reads_are_not(operating: Operating) -> None:
    valid = True
    token = operating.run(may_write=lambda: valid)
    maps = f"/api/v1/namespaces/{operating.namespace}/configmaps"
    one = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}
    assert (await operating.ask("POST", maps, one, token=token)).status == 201
    valid = False
    for method, path, body in (
        ("POST", maps, {**one, "metadata": {"name": "two"}}),
        ("PATCH", f"{maps}/one", {"data": {"a": "b"}}),
        ("PUT", f"{maps}/one", one),
        ("DELETE", f"{maps}/one", None),
    ):
        refused = await operating.ask(method, path, body, token=token)
        assert refused.status == 409
        assert refused.obj["kind"] == "Status"
        assert (refused.obj["reason"], refused.obj["code"]) == ("Conflict", 409)
        assert "another replica may reconcile this object" in refused.obj["message"]
    assert (await operating.ask("GET", f"{maps}/one", token=token)).status == 200
    assert (await operating.directly("GET", f"{maps}/two")).status == 404
    assert "data" not in (await operating.directly("GET", f"{maps}/one")).obj


async def test_content_that_is_still_coming_when_the_lease_is_lost_never_becomes_a_write(operating: Operating) -> None:
    valid = True
    token = operating.run(may_write=lambda: valid, inject=False)
    path = f"/api/v1/namespaces/{operating.namespace}/configmaps"
    body = orjson.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}})
    host, _, port = operating.proxy.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:20])
    await writer.drain()
    # Another call of the run, answered meanwhile, shows that the first is on its way.
    assert (await operating.ask("GET", path, token=token)).status == 200
    valid = False
    writer.write(body[20:])
    assert (await reader.readline()).split()[1] in {b"409", b"503"}
    writer.close()
    assert (await operating.directly("GET", f"{path}/late")).status == 404


async def test_open_requests_of_a_run_are_closed_and_later_reads_are_answered(operating: Operating) -> None:
    token = operating.run(may_write=lambda: False)
    path = f"/api/v1/namespaces/{operating.namespace}/configmaps"
    host, _, port = operating.proxy.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path}?watch=true HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    assert (await reader.readline()).split()[1] == b"200"
    operating.identities.cut(token)
    while await reader.read(65536):
        pass
    writer.close()
    assert (await operating.ask("GET", path, token=token)).status == 200
