"""The page of a run, served while it goes on."""

from __future__ import annotations

import http.client
import json
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.runs import shoal, start
from support.synthetic_run import write_run

from shoal.commands import serve
from shoal.commands.serve import renewal


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, int, Any]]:
    """A run that goes on, the port of its page, and the process that serves it."""
    run = write_run(tmp_path / "run", 4, 6, finished=False)
    with start("report", run, "--serve") as process:
        line = process.stdout.readline()
        yield run, int(re.search(r"http://127\.0\.0\.1:(\d+)/", line)[1]), process  # type: ignore[index]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "") and "report.html" in out


def ask(port: int, path: str, method: str = "GET", host: str | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def grow(run: Path) -> None:
    """One generation more."""
    for name in ("lineage.jsonl", "metrics.jsonl"):
        lines = [json.loads(line) for line in (run / name).read_text().splitlines()]
        last = [line for line in lines if line["generation"] == lines[-1]["generation"]]
        more = [json.dumps(line | {"generation": line["generation"] + 1}) for line in last]
        with (run / name).open("a") as file:
            file.write("".join(f"{line}\n" for line in more))


@pytest.mark.parametrize("last", ["failures/a/0.txt", "failures/pole/a/0.txt", "final_selection.json"])
def test_the_page_renews_itself_for_what_ends_a_study_or_a_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    """A run that fails, and the selection among the champions of workers which all have their results."""
    monkeypatch.setattr(serve, "INTERVAL", -1.0)
    (tmp_path / "report.html").write_text("page")
    page = serve._Page(tmp_path, lambda path: path / "report.html")
    before = page.stamp()
    (tmp_path / last).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / last).write_text("{}")
    assert page.stamp() != before


def test_the_page_renews_itself_and_nothing_else_is_served(served: tuple[Path, int, Any]) -> None:
    run, port, _ = served
    status, page = ask(port, "/")
    before = ask(port, "/stamp")[1]
    assert status == 200 and page == (run / "report.html").read_text().replace("</body>", f"{renewal(before)}</body>")
    assert "/stamp" in renewal("") and "/stamp" not in (run / "report.html").read_text()
    assert ask(port, "/", "HEAD") == ask(port, "/?vscodeBrowserReqId=1", "HEAD") == (200, "")
    for path in ("/report.html", "/experiment.yaml", "/../run/experiment.yaml", "//etc/passwd", "/stamp/", "/x?/"):
        assert ask(port, path)[0] == 404, path
    assert ask(port, "/", "POST")[0] == 501
    for host in ("evil.example", "evil.example:80", f"127.0.0.1.evil.example:{port}", "10.0.0.1:80", ":80", "localhos"):
        assert ask(port, "/", host=host)[0] == 403, host
    for host in (f"localhost:{port}", "localhost", "127.0.0.1"):  # browsers leave out port 80
        assert ask(port, "/", host=host)[0] == 200, host

    assert ask(port, "/stamp") == (200, before) and not before.startswith("over")
    grow(run)
    end = time.monotonic() + 30
    while ask(port, "/stamp")[1] == before:
        assert time.monotonic() < end
        time.sleep(0.1)
    assert ask(port, "/")[1] != page

    # While the run is away an error is no stamp, and its page is renewed as well.
    before, away = ask(port, "/stamp")[1], run.with_name("away")
    run.rename(away)
    while (asked := ask(port, "/stamp"))[0] == 200:
        assert asked[1] == before and time.monotonic() < end
        time.sleep(0.1)
    status, page = ask(port, "/")
    assert status == 503 and "no such directory" in page and renewal("") in page
    away.rename(run)
    assert ask(port, "/stamp") == (200, before) and renewal(before) in ask(port, "/")[1]

    (run / "result.json").write_text("{}")
    while not ask(port, "/stamp")[1].startswith("over"):
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.browser
def test_a_browser_shows_what_is_new_where_it_was_read(served: tuple[Path, int, Any], chromium: Any) -> None:
    run, port, _ = served
    page = chromium.new_page(viewport={"width": 1000, "height": 500})
    page.goto(f"http://127.0.0.1:{port}/")
    page.evaluate("window.before = true; window.scrollTo(0, 600)")
    grow(run)
    page.wait_for_function("window.before === undefined", timeout=30_000)
    page.wait_for_function("Math.abs(window.scrollY - 600) < 50", timeout=30_000)
    page.evaluate("window.before = true")
    run.rename(run.with_name("away"))
    page.wait_for_timeout(3_000)  # several looks, all of them in vain
    assert page.evaluate("window.before")
    page.reload()
    assert "no such directory" in page.inner_text("body")
    run.with_name("away").rename(run)
    page.wait_for_selector("main, nav", timeout=30_000)
    page.close()


def test_what_cannot_be_served(tmp_path: Path, said: Any) -> None:
    run = write_run(tmp_path / "run", 4, 2)
    for told in (shoal("report", tmp_path, "--serve"), shoal("report", run, "--serve", "--port", 70_000)):
        assert told.code == 2
        said(told.err)
