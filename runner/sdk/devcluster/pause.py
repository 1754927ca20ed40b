"""The image of the container that holds the namespaces of a pod, made without a compiler. Pure, except `write`.

Its only program is an ELF file of machine code: ignore SIGCHLD, so that the kernel reaps orphans, then wait forever.
"""

from __future__ import annotations

import hashlib
import io
import json
import struct
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

IMAGE = "cluster.local/pause:1"
_ADDRESS = 0x400000
_HEADERS = 64 + 56
_MACHINE_CODE = {
    "amd64": bytes.fromhex(
        "b80d000000"  # mov $13, %eax: rt_sigaction(SIGCHLD, {SIG_IGN}, NULL, 8)
        "bf11000000"  # mov $17, %edi
        "488d3513000000"  # lea action(%rip), %rsi
        "31d2"  # xor %edx, %edx
        "41ba08000000"  # mov $8, %r10d
        "0f05"  # syscall
        "b822000000"  # 1: mov $34, %eax: pause()
        "0f05"  # syscall
        "ebf7"  # jmp 1b
        "0100000000000000"  # action: SIG_IGN; flags, restorer and mask are zero
        "000000000000000000000000000000000000000000000000"
    ),
}
_ELF_MACHINES = {"amd64": 62}
MACHINES = frozenset(_MACHINE_CODE)
"""Machines for which the image can be made."""


def write(archive: Path, machine: str) -> None:
    """Write the image as an archive in the format of `docker save`."""
    content = tar({"pause": (_program(machine), 0o755)})
    archive.write_bytes(docker_archive([IMAGE], content, {"Entrypoint": ["/pause"]}, machine))


def docker_archive(names: Sequence[str], layer: bytes, config: Mapping[str, Any], machine: str) -> bytes:
    """Return an image with one layer, in the format of `docker save`."""
    image = {
        "architecture": machine,
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": list(names), "Layers": ["layer.tar"]}]
    files = {
        "layer.tar": layer,
        "config.json": json.dumps(image).encode(),
        "manifest.json": json.dumps(manifest).encode(),
    }
    return tar({name: (data, 0o644) for name, data in files.items()})


def _program(machine: str) -> bytes:
    """Return an ELF file with one segment, see elf(5)."""
    code = _MACHINE_CODE[machine]
    size = _HEADERS + len(code)
    identity = b"\x7fELF" + bytes((2, 1, 1)) + bytes(9)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        *(identity, 2, _ELF_MACHINES[machine], 1, _ADDRESS + _HEADERS, 64, 0, 0, 64, 56, 1, 0, 0, 0),
    )
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _ADDRESS, _ADDRESS, size, size, 0x1000)
    return header + segment + code


def tar(files: Mapping[str, tuple[bytes, int]]) -> bytes:
    """Return a tar archive of files, given by their content and mode."""
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w") as tar:
        for name, (data, mode) in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), mode
            tar.addfile(member, io.BytesIO(data))
    return output.getvalue()
