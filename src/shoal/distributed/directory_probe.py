"""Trials of a directory that workers are to share, for `shoal doctor`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from shoal.core.atomic import create_file, write_file
from shoal.core.errors import BadInput


def probe(path: Path) -> Iterator[tuple[bool, str]]:
    """Try what workers rely on, in a folder that is removed again: what works and what does not."""
    place = path / f".probe-{uuid.uuid4().hex}"
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        place.mkdir(parents=True)
        begin = time.perf_counter()
        write_file(place / "a", b"1" * 1_000_000)
        yield True, f"{path} can be written: a megabyte is on disk after {1000 * (time.perf_counter() - begin):.0f} ms"
        write_file(place / "a", b"2")
        once, twice = create_file(place / "b", b"1"), create_file(place / "b", b"2")
        whole = (place / "a").read_bytes() == b"2" and (place / "b").read_bytes() == b"1"
        yield once and not twice and whole, "a rename replaces, and of two that create a file one succeeds"
        look = f"import os; print(sorted(n for n in os.listdir({str(place)!r})))"
        seen = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True).stdout.strip()
        yield seen == "['a', 'b']", "another process here sees the files at once"
        os.utime(place / "a", (0, 0))
        yield (place / "a").stat().st_mtime == 0, "the modification time of a file can be set"
    except OSError as error:
        yield False, f"{path} cannot be used: {error.strerror or error}"
    except BadInput as error:
        yield False, str(error)
    finally:
        shutil.rmtree(place, ignore_errors=True)
        for folder in made:
            with suppress(OSError):
                folder.rmdir()
