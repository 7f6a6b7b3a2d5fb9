"""Atomic files, opened only where they lie; JSON with a checksum."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import stat
import uuid
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from shoal.core.errors import BadInput

FILE, FOLDER = "a file", "a folder"
LARGEST = 2**26  # bytes of a text of a run, or of a line of one: those of 100,000 members fit
NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
ZEROS = bytes(1 << 16)
KINDS = {stat.S_IFREG: FILE, stat.S_IFDIR: FOLDER, stat.S_IFLNK: "a link"}


class Damaged(BadInput):
    """A file that is incomplete, missing, corrupted or not of Shoal; the message says which."""


class Irregular(BadInput):
    """A link, a pipe or a device lies where a file or a folder belongs, one of these where the other belongs, or a file that
    is larger than any of its kind: one with a hole takes no room.

    short: what is wrong with it, where its name is known
    """

    def __init__(self, path: Path, short: str, belongs: str):
        super().__init__(f"{path} {short}, {belongs}; remove it")
        self.short = short


def expanded(path: str | os.PathLike[str]) -> Path:
    """A path with `~` written out, as a shell does."""
    return Path(os.path.expanduser(path))


def absolute(path: str | os.PathLike[str]) -> Path:
    """A path as it is from here, with `~` written out; links in it stay. An environment may change the working directory."""
    return expanded(path).absolute()


def check_target(path: Path) -> None:
    """Raise BadInput where no file can be written: its folder does not exist, or it is a folder itself."""
    if not path.parent.is_dir():
        raise BadInput(f"{path} cannot be written: there is no folder {path.parent}")
    if path.is_dir():
        raise BadInput(f"{path} cannot be written: it is a folder")


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
    """Write a file unless there is one, all at once, and return True; of several processes that try, one succeeds.

    Raises BadInput where the file system has no hard links, and OSError.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        _write(temporary, data)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            problem = "lies on a file system without hard links, by which processes claim what they are at"
            raise BadInput(f"{path.parent} {problem}; choose a place on another one") from error
    finally:
        temporary.unlink(missing_ok=True)
    return True


def open_descriptor(path: Path, flags: int, within: Path | None = None) -> int:
    """The descriptor of a regular file, to be closed. Neither it nor a folder between `within`, by default its own, and it
    may be a link: that would lead to files of whoever opens a run, and not of who has made it.

    Raises Irregular, also for what may block for ever, as a pipe does; and OSError.
    """
    within = within or path.parent
    *folders, name = path.relative_to(within).parts
    at, held = within, [os.open(within, os.O_RDONLY | os.O_DIRECTORY)]
    try:
        for folder in folders:
            at = at / folder
            held.append(_open_in(held[-1], at, os.O_RDONLY | os.O_DIRECTORY, FOLDER))
        return _open_in(held[-1], at / name, flags, FILE)
    finally:
        for descriptor in held:
            os.close(descriptor)


def _open_in(folder: int, path: Path, flags: int, wanted: str) -> int:
    """The descriptor of what has the name of a path in the folder of a descriptor."""
    with suppress(FileNotFoundError):  # which may be made
        _check(path, os.stat(path.name, dir_fd=folder, follow_symlinks=False), wanted)
    handle = os.open(path.name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, 0o644, dir_fd=folder)
    try:
        _check(path, os.fstat(handle), wanted)  # it may be another one by now
    except BaseException:
        os.close(handle)
        raise
    return handle


def check_kind(path: Path, wanted: str) -> None:
    """Raise Irregular where something else than a file, or a folder, has this name."""
    with suppress(FileNotFoundError):
        _check(path, path.lstat(), wanted)


def _check(path: Path, found: os.stat_result, wanted: str) -> None:
    kind = KINDS.get(stat.S_IFMT(found.st_mode), "a pipe or a device")
    if kind != wanted:
        raise Irregular(path, f"is {kind}", f"where {wanted} belongs")


def open_file(path: Path, within: Path | None = None, most: float = math.inf) -> BinaryIO:
    """A regular file of at most so many bytes, to be read; see `open_descriptor`."""
    file = os.fdopen(open_descriptor(path, os.O_RDONLY, within), "rb")
    try:
        check_size(path, os.fstat(file.fileno()).st_size, most)
    except BaseException:
        file.close()
        raise
    return file


def check_size(path: Path, size: int, most: float, of: str = "") -> None:
    """Raise Irregular where a file, or that part of it, has more bytes than belong there."""
    if size > most:
        raise Irregular(path, f"has {of}more than {most:,.0f} bytes", "which are all that belong there")


def read_file(path: Path, within: Path | None = None, most: float = LARGEST) -> bytes:
    """Read a regular file of at most so many bytes; see `open_descriptor`."""
    with open_file(path, within, most) as file:
        return file.read()


def read_named(path: Path) -> bytes:
    """The bytes of a text that a user has named, which may lead anywhere, to a pipe too. Raises Irregular, and OSError."""
    with path.open("rb") as file:
        data = file.read(LARGEST + 1)
    check_size(path, len(data), LARGEST)
    return data


def read_or_nothing(path: Path) -> str:
    """Read the text of a file; "" where there is none that can be read."""
    try:
        return read_file(path).decode(errors="replace")
    except (OSError, Irregular):
        return ""


def remove(path: Path) -> None:
    """Remove a file or folder, if there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


class Staging:
    """A hidden folder of one process, beside the files of a place that belongs to this process.

    Files enter the place by a rename out of this folder, and leave it by a rename into it. A process that takes over the
    place removes this folder; a paused process that continues later then finds nothing to rename, and no folder to
    rename to, so that it cannot change the place any more.
    """

    def __init__(self, place: Path, name: str):
        self.path = place / f".{name}.work"
        self._opened = False

    def open(self, check: Callable[[], None] = lambda: None) -> None:
        """Begin, once, and end what others have begun, or what they left when they were killed.

        check: raises where another process has the place now.
        """
        if self._opened:
            return
        while not self.path.is_dir():  # another may remove it that was here first, and paused, until its own is removed
            self.path.mkdir()
            try:
                check()
            except OSError:
                self.close()
                raise
            for other in self.path.parent.glob(".*.work"):
                if other != self.path:
                    self.remove(other)
        self._opened = True

    @property
    def lost(self) -> bool:
        """True where another process has taken over the place: its work had begun here, and this folder is gone."""
        return self._opened and not self.path.is_dir()

    def write(self, path: Path, data: bytes) -> None:
        """Write a file of the place: whole, or not at all."""
        write_file(path, data, via=self.path)

    def remove(self, path: Path) -> None:
        """Remove a file or folder of the place, if there is one; at once for all who look."""
        aside = self.path / f"{path.name}.{uuid.uuid4().hex}"
        with suppress(FileNotFoundError):
            path.rename(aside)
            remove(aside)

    def put(self, folder: Path, path: Path) -> None:
        """Give a folder that was made here its name; one that has it steps aside, for it cannot be renamed over."""
        if not os.path.lexists(path):
            folder.rename(path)
            return
        old = self.path / f"{path.name}.{uuid.uuid4().hex}"
        path.rename(old)
        try:
            folder.rename(path)
        except OSError:
            old.rename(path)
            raise
        remove(old)

    def close(self) -> None:
        """Remove the hidden folder: there is nothing left to write."""
        shutil.rmtree(self.path, ignore_errors=True)


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
    """JSON with a checksum, which `unseal` verifies."""
    return json.dumps(content | {"manifest_crc32": _checksum(content)}, indent=1).encode()


def unseal(path: Path, within: Path | None = None) -> dict[str, Any]:
    """Read what was sealed in a file; see `open_descriptor`. Raises Damaged."""
    try:
        content = parse_json(read_file(path, within))
    except (OSError, ValueError, Irregular) as error:
        raise Damaged(f"{path.parent}: no readable {path.name} ({error})") from error
    if not isinstance(content, dict) or "manifest_crc32" not in content:
        raise Damaged(f"{path.parent}: {path.name} is not one of Shoal's")
    if content.pop("manifest_crc32") != _checksum(content):
        raise Damaged(f"{path.parent}: {path.name} is corrupted")
    return content


def _write(path: Path, data: bytes) -> None:
    """Write, but leave a hole in the file where there are zeros only, as in a replay buffer that is not full."""
    with open(path, "xb") as file:
        for start in range(0, len(data), len(ZEROS)):
            block = data[start : start + len(ZEROS)]
            if block == ZEROS:
                file.seek(len(ZEROS), os.SEEK_CUR)
            else:
                file.write(block)
        file.truncate(len(data))
        file.flush()
        os.fsync(file.fileno())


def _checksum(content: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())
