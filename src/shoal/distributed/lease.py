"""Leases of names, among processes that share only a directory.

Why not `filelock.SoftFileLease`: a worker of another machine that has the same host name is one of this machine that has
ended to it, and a living one loses its name at once (tried with filelock 4.2.12).
"""

from __future__ import annotations

import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from shoal.core.atomic import Irregular, create_file, open_descriptor, read_file, read_or_nothing, remove
from shoal.core.errors import BadField

BEAT = 2.0  # seconds between two renewals
PATIENCE = 20.0  # seconds without a renewal after which a lease is void
RETURNED = 1.0  # seconds in which a lease that was removed by mistake is given back
UNKNOWN = "unknown"


class Lease:
    """The right to work under a name. The holder updates the file's modification time again and again.

    Clocks are not compared: a lease is void when its modification time has not changed for PATIENCE seconds of the
    observer's own clock, or when its holder is known to have ended, as a process of this machine. The observer then
    renames the file, which only one process can do.
    """

    def __init__(self, path: Path, pause: Callable[[], None], note: Callable[[str], None]):
        """Raises BadInput when another process works under this name. `pause` and `note`: see `Workspace`."""
        self._path = path
        self._mine = f"{holder_of(os.getpid())} {uuid.uuid4().hex}"
        while not create_file(path, self._mine.encode()):
            self._break(pause, note)
        # It remains this file after a rename, so that a new lease is never renewed by mistake.
        self._file = open_descriptor(path, os.O_RDWR)
        self._done = threading.Event()
        self._beats = threading.Thread(target=self._beat, name="lease", daemon=True)
        self._beats.start()

    def check(self) -> None:
        """Raises OSError when another process has the name, or when it cannot be seen who has."""
        began = time.monotonic()
        while not (holder := self._holder()) and time.monotonic() - began < RETURNED:
            time.sleep(0.01)  # another process has it in its hands, and sees that it is not the one it meant to remove
        if holder != self._mine:
            raise OSError(f"another process has taken over as worker {self._path.name}, which seemed to be gone")

    def release(self) -> None:
        """Stop working under this name."""
        self._done.set()
        self._beats.join()
        os.close(self._file)
        if read_or_nothing(self._path) == self._mine:
            with suppress(OSError):
                self._remove(self._mine)

    def _break(self, pause: Callable[[], None], note: Callable[[str], None]) -> None:
        """Remove the lease of a process that has ended. Raises BadInput when it has not."""
        holder = read_or_nothing(self._path)
        host, pid, _ = _parts(holder)
        if not ended(holder):
            note(f"worker {self._path.name} may be at work on {host or 'another machine'}: watching for {PATIENCE:g} s")
            before, began = _moved(self._path), time.monotonic()
            while time.monotonic() - began < PATIENCE and before is not None:
                pause()
                time.sleep(0.05)
                if _moved(self._path) not in (before, None):
                    problem = f"it is at work, as process {pid} on {host}"
                    raise BadField("exchange.worker", problem, value=self._path.name)
                if read_or_nothing(self._path) != holder:
                    return  # given back, or another process was faster: try again
        self._remove(holder)

    def _remove(self, holder: str) -> None:
        """Remove the lease, if this process still holds it."""
        aside = self._path.with_name(f".{self._path.name}.{uuid.uuid4().hex}")
        with suppress(FileNotFoundError):
            self._path.rename(aside)
            if read_or_nothing(aside) != holder:  # a new one, of another process that was faster
                with suppress(FileExistsError):
                    os.link(aside, self._path)
            remove(aside)

    def _holder(self) -> str:
        """The holder of the lease; "" where there is none. Raises OSError where that cannot be seen."""
        try:
            return read_file(self._path).decode(errors="replace")
        except (FileNotFoundError, Irregular):
            return ""

    def _beat(self) -> None:
        while not self._done.wait(BEAT):
            with suppress(OSError):  # a disk that is full or unavailable for a while
                os.utime(self._file)


def holder_of(pid: int) -> str:
    """A process of this machine, as the holder of a lease."""
    return f"{socket.gethostname()} {pid} {realm_here()}"


def ended(holder: str) -> bool:
    """True where the holder of a lease is known to have ended, as a process of this machine."""
    pid = process_here(holder)
    return pid is not None and not alive(pid)


def process_here(holder: str) -> int | None:
    """The process of the holder of a lease, where it is, or was, one of this machine; None elsewhere."""
    _, pid, realm = _parts(holder)
    return int(pid) if realm == realm_here() != UNKNOWN and re.fullmatch("[0-9]{1,9}", pid) else None


def void(leases: Iterable[Path], pause: Callable[[], None]) -> bool:
    """True where none of these leases is renewed for PATIENCE seconds, or those that are have been given back; false as soon
    as one is. pause: see `Workspace`."""
    watched: Mapping[Path, int | None] = {path: _moved(path) for path in leases}
    began = time.monotonic()
    while watched and time.monotonic() - began < PATIENCE:
        pause()
        time.sleep(0.05)
        now = {path: moved for path in watched if (moved := _moved(path)) is not None}
        if any(watched[path] != moved for path, moved in now.items()):
            return False
        watched = now
    return True


def _moved(lease: Path) -> int | None:
    """The modification time of a lease; None where there is none."""
    try:
        return lease.stat().st_mtime_ns
    except OSError:
        return None


def _parts(holder: str) -> list[str]:
    """The machine of a holder, its process and the realm of that."""
    return [*holder.split(), "", "", ""][:3]


def realm_here() -> str:
    """The realm in which a process id means what it means here: a start of a machine, and a namespace of process ids.

    The name of the machine does not tell that: containers may share it, and see nothing of one another's processes.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}:{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:  # not Linux, or hidden
        return UNKNOWN


def alive(pid: int) -> bool:
    """True where there is such a process on this machine, whosever it is."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # of another process
    return True
