"""Files that are whole or not there at all, and JSON that knows when it was damaged."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import uuid
import zlib
from pathlib import Path
from typing import Any, BinaryIO


class Damaged(Exception):
    """A file that is incomplete, missing, corrupted or not of Shoal; the message says which."""


def write_file(path: Path, data: bytes, via: Path | None = None) -> None:
    """Write a file: under its name there is the old or the new one, complete. via: the folder where it is made first."""
    temporary = (via or path.parent) / f".{path.name}.{uuid.uuid4().hex}"  # process ids repeat, in containers above all
    try:
        _write(temporary, data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def create_file(path: Path, data: bytes) -> bool:
    """Write a file unless there is one, all at once; of several processes that try, one succeeds. Whether it did."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        _write(temporary, data)
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    return True


def open_file(path: Path) -> BinaryIO:
    """A regular file, to be read. Raises OSError for anything else, because reading a pipe may block for ever."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is no regular file")
    return os.fdopen(handle, "rb")


def read_file(path: Path) -> bytes:
    """What a regular file holds. Raises OSError."""
    with open_file(path) as file:
        return file.read()


def read_or_nothing(path: Path) -> str:
    """What a file says; "" where there is none that can be read."""
    try:
        return read_file(path).decode(errors="replace")
    except OSError:
        return ""


def remove(path: Path) -> None:
    """Remove a file or folder, if there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def parse_json(text: bytes | str) -> Any:
    """JSON as data that can be written again. Raises ValueError for anything else."""
    try:
        data = json.loads(text)
        if (text.find("\\u") if isinstance(text, str) else text.find(b"\\u")) >= 0:
            json.dumps(data, ensure_ascii=False).encode()  # half a character, such as \ud800, is no text
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return data


def seal(content: dict[str, Any]) -> bytes:
    """JSON with a checksum, by which `unseal` knows it."""
    return json.dumps(content | {"manifest_crc32": _checksum(content)}, indent=1).encode()


def unseal(path: Path) -> dict[str, Any]:
    """What was sealed in a file. Raises Damaged."""
    try:
        content = parse_json(read_file(path))
    except (OSError, ValueError) as error:
        raise Damaged(f"{path.parent}: no readable {path.name} ({error})") from error
    if not isinstance(content, dict) or "manifest_crc32" not in content:
        raise Damaged(f"{path.parent}: {path.name} is not one of Shoal's")
    if content.pop("manifest_crc32") != _checksum(content):
        raise Damaged(f"{path.parent}: {path.name} is corrupted")
    return content


def _write(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _checksum(content: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())
