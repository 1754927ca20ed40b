"""Atomic replacement of files. Imports nothing of this package."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from pathlib import Path


def write(path: Path, content: str | bytes | Iterable[bytes], mode: int = 0o600) -> None:
    """Write `content` to `path`: other processes see the old file or the new one, never a part of it.

    The file has `mode` whatever the umask is. Text is written as UTF-8, with surrogate escapes as the bytes that they
    were decoded from. A symbolic link at `path` is replaced. Raises OSError and leaves no temporary file behind.
    """
    fresh = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            data = content.encode(errors="surrogateescape") if isinstance(content, str) else content
            file.writelines([data] if isinstance(data, bytes) else data)
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
