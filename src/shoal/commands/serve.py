"""`shoal report --serve`: a page that reloads itself while the run goes on."""

from __future__ import annotations

import html
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from shoal.core import run_files
from shoal.core.errors import BadInput
from shoal.core.interrupts import interruptible
from shoal.records.screen import Screen
from shoal.report.rendering import rendered

ADDRESS = "127.0.0.1"  # this machine only
# Files that a page depends on. The last one that is written may be the reason why a run of a study failed, or, once all
# workers have their results, what was selected among their champions.
WRITTEN = (
    *(run_files.EXPERIMENT, run_files.METRICS, run_files.RESULT, run_files.FINAL_SELECTION),
    *("study.yaml", "failures/**/*.txt"),
)
INTERVAL = 1.0  # seconds between two checks of them
OVER = "over"


def serve(path: Path, write: Callable[[Path], Path], port: int, screen: Screen) -> None:
    """Serve a page to browsers on this machine until Ctrl-C, written anew when its files change. Raises BadInput.

    write: writes the page and returns its path. port: 0 is any free port
    """
    page = _Page(path, write)
    page.stamp()  # raises BadInput before the server starts
    with interruptible() as attend:

        class PageServer(ThreadingHTTPServer):
            daemon_threads = True

            def service_actions(self) -> None:
                attend()

            def handle_error(self, *_: object) -> None:
                """A browser closed the connection."""

        try:
            server = PageServer((ADDRESS, port), _handler(page))
        except OverflowError as error:
            raise BadInput(f"--port {port}: must be 0 to 65535") from error
        except OSError as error:
            raise BadInput(f"--port {port}: {error}") from error
        with server:
            screen.print(f"serving on http://{ADDRESS}:{server.server_port}/ (Ctrl-C ends it)", soft_wrap=True)
            try:
                server.serve_forever(poll_interval=0.2)
            except KeyboardInterrupt:
                screen.print()


class _Page:
    """A page, written anew when its files have changed."""

    def __init__(self, path: Path, write: Callable[[Path], Path]):
        self._path, self._write = path, write
        self._lock, self._seen, self._looked = threading.Lock(), "", 0.0
        self._text = ""

    def text(self) -> str:
        """The current page, with the script that reloads it."""
        stamp = self.stamp()
        return self._text.replace("</body>", f"{renewal(stamp)}</body>")

    def stamp(self) -> str:
        """A string that changes with the page; it begins with `over` once the run has ended."""
        with self._lock:
            if not self._text or time.monotonic() - self._looked > INTERVAL:
                now = self._newest()
                if now != self._seen:
                    self._text, self._seen = self._write(self._path).read_text(encoding="utf-8"), now
                self._looked = time.monotonic()
            return self._seen

    def _newest(self) -> str:
        files = sorted(file for name in WRITTEN for file in self._path.rglob(name))
        stats = []
        for file in files:
            with suppress(OSError):  # deleted meanwhile, or no permission
                stats.append((file.stat().st_mtime_ns, file.stat().st_size))
        return f"{OVER if (self._path / 'result.json').exists() else 'on'} {hash(tuple(stats))}"


def renewal(stamp: str) -> str:
    """The script that reloads a page with this stamp; the stamp of an error page is ""."""
    return rendered("reload.html", stamp=stamp)


def _handler(page: _Page) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Serve the page and its stamp only."""

        def do_GET(self) -> None:
            host = (self.headers.get("Host") or "").partition(":")[0]  # browsers leave out port 80
            if host not in (ADDRESS, "localhost"):  # against DNS rebinding
                return self.send_error(HTTPStatus.FORBIDDEN)
            answers = {"/": ("text/html", page.text), "/stamp": ("text/plain", page.stamp)}
            place = self.path.partition("?")[0]  # an editor's browser adds a query
            if place not in answers:
                return self.send_error(HTTPStatus.NOT_FOUND)
            (kind, answer), status = answers[place], HTTPStatus.OK
            try:
                content = answer().encode()
            except (OSError, BadInput) as error:  # the disk is full, or the run was moved away
                status, text = HTTPStatus.SERVICE_UNAVAILABLE, html.escape(str(error), quote=False)
                content = f"<!DOCTYPE html><body><p>{text}</p>{renewal('')}</body>".encode(errors="replace")
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    return Handler
