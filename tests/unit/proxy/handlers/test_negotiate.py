from __future__ import annotations

import pytest

from runner.core.proxy.handlers.forward import without_binary

PROTOBUF = "application/vnd.kubernetes.protobuf"
TABLE = ";as=Table;g=meta.k8s.io;v=v1"


@pytest.mark.parametrize(
    ("accept", "forwarded"),
    [
        ([f"{PROTOBUF},application/json"], ["application/json"]),
        ([PROTOBUF, "application/json"], ["application/json"]),
        ([f"application/json, {PROTOBUF};q=0.5"], ["application/json"]),
        ([f"{PROTOBUF}{TABLE},application/json{TABLE}"], [f"application/json{TABLE}"]),
        (["application/cbor, application/JSON , application/yaml"], ["application/JSON, application/yaml"]),
        ([f"{PROTOBUF},*/*"], ["application/json, */*"]),
        ([f"{PROTOBUF}{TABLE}", "application/*;q=0.1"], [f"application/json{TABLE}, application/*;q=0.1"]),
        ([PROTOBUF], [PROTOBUF]),
        ([f"{PROTOBUF}, application/yaml"], [f"{PROTOBUF}, application/yaml"]),
        (["application/json"], ["application/json"]),
        (["*/*"], ["*/*"]),
        ([], []),
    ],
)
def test_json_is_requested_if_a_client_of_binary_media_types_accepts_it(
    accept: list[str], forwarded: list[str]
) -> None:
    headers = [(b"Host", b"h"), *((b"accept", value.encode()) for value in accept), (b"X", b"y")]
    found = without_binary(headers)
    assert [value.decode() for name, value in found if name.lower() == b"accept"] == forwarded
    assert [header for header in found if header[0] in {b"Host", b"X"}] == [(b"Host", b"h"), (b"X", b"y")]
