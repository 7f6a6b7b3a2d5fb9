"""The report in a real browser: opened from disk, looked at, pointed at."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.cases import others_slow

from shoal.report.page import write_report

pytestmark = pytest.mark.browser

SYNTHETIC = runpy.run_path(str(Path(__file__).parents[1] / "support" / "synthetic_run.py"))
RUNS: dict[str, dict[str, Any]] = {
    "small": {"population": 8, "generations": 20},
    "large": {"population": 80, "generations": 60},
    "running": {"population": 4, "generations": 6, "finished": False, "copying": False},
    "single": {"population": 1, "generations": 1, "env": "A-Very-Long-Environment-Name-Without-Any-Break-v0" * 3},
    "diverged": {"population": 4, "generations": 3, "diverged": 1.0},
    "es": {"population": 64, "generations": 300, "decay": 0.99},
    "cem_rl": {"method": "cem_rl", "population": 10, "generations": 1},
    "dvd": {"population": 12, "generations": 12},
    "independent": {"population": 4, "generations": 8},
}
WRITERS = {"es": "write_sampled", "cem_rl": "write_sampled", "dvd": "write_dvd", "independent": "write_independent"}

# Every visible text that has too little contrast with what lies behind it (WCAG AA).
FAINT_TEXT = """() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgba = color => {  // also of color-mix() and light-dark()
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, bottom) => bottom.map((v, i) => top[i] * top[3] + v * (1 - top[3]));
  const behind = element => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) layers.push(rgba(getComputedStyle(e).backgroundColor));
    return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255]);
  };
  const light = rgb => {
    const [r, g, b] = rgb.map(v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const faint = [];
  for (const e of document.body.querySelectorAll('*')) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.checkVisibility() || ['SCRIPT', 'STYLE', 'title', 'desc'].includes(e.tagName)) continue;
    const below = behind(e), style = getComputedStyle(e);
    const [a, b] = [light(over(rgba(style.color), below)), light(below)];
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    const large = parseFloat(style.fontSize) >= 24;
    if (ratio < (large ? 3 : 4.5)) faint.push([e.tagName, e.className, e.textContent.slice(0, 40), ratio]);
  }
  return faint;
}"""


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    runs = {name: SYNTHETIC[WRITERS.get(name, "write_run")](folder / name, **more) for name, more in RUNS.items()}
    return {name: write_report(run) for name, run in runs.items()}


@pytest.fixture(scope="module")
def tabs(chromium: Any) -> dict[tuple[int, str], Any]:
    """A page of each width and scheme, which tests visit one after another: a new one takes longer than a test."""
    return {}


@pytest.fixture
def visit(chromium: Any, tabs: dict[tuple[int, str], Any], reports: dict[str, Path]) -> Iterator[Callable[..., Any]]:
    """Opens a report; at the end nothing may have gone wrong, and nothing may have been asked of a network."""
    complaints: list[str] = []
    requests: list[str] = []
    opened: list[Any] = []
    hears: dict[Any, Callable[[Any], None]] = {
        "console": lambda message: complaints.append(message.text),
        "pageerror": lambda error: complaints.append(str(error)),
        "request": lambda request: requests.append(request.url),
    }

    def open_report(name: str = "small", width: int = 1280, scheme: str = "light") -> Any:
        if (width, scheme) not in tabs:
            tabs[width, scheme] = chromium.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page = tabs[width, scheme]
        if page not in opened:
            opened.append(page)
            for event, hear in hears.items():
                page.on(event, hear)
        page.mouse.move(0, 0)
        page.goto(reports[name].as_uri())
        return page

    yield open_report
    for page in opened:
        page.emulate_media(media="screen")
        for event, hear in hears.items():
            page.remove_listener(event, hear)
    assert complaints == []
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []


def point(page: Any, plot: Any, x: float, y: float) -> str:
    """Move the pointer to a place in a plot; returns what the tooltip says."""
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
    page.locator("#tip").wait_for(state="visible")
    return str(page.locator("#tip").inner_text())


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("width", others_slow([390, 1280], 390))
def test_every_section_fits(visit: Callable[..., Any], name: str, width: int) -> None:
    page = visit(name, width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    sections = page.locator("section")
    assert sections.count() >= 5
    for at in range(sections.count()):
        box = sections.nth(at).bounding_box()
        assert box["height"] > 60 and box["x"] >= 0 and box["x"] + box["width"] <= width
    spilled = """() => [...document.querySelectorAll('figure, .champion-card, .facts > div')]
        .filter(e => e.scrollWidth > e.clientWidth + 1 && e.checkVisibility()).map(e => e.textContent.slice(0, 60))"""
    assert page.evaluate(spilled) == []
    mute = """() => [...document.querySelectorAll('figure:has(.plot, .heat, .bars)')]
        .filter(e => !e.querySelector('.save button[title$=CSV]')).map(e => e.textContent.slice(0, 60))"""
    assert page.evaluate(mute) == []


def test_the_navigation_wraps(visit: Callable[..., Any]) -> None:
    """Links of the last sections were outside the window, without a scrollbar that leads to them."""
    page = visit("small")
    page.set_viewport_size({"width": 1000, "height": 900})
    assert page.evaluate("document.querySelector('nav div').scrollWidth") <= 1000
    page.set_viewport_size({"width": 1280, "height": 900})


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", others_slow(["small", "running", "diverged", "es", "dvd"], "diverged"))
def test_text_can_be_read(visit: Callable[..., Any], scheme: str, name: str) -> None:
    page = visit(name, scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.evaluate(FAINT_TEXT) == []


def test_light_and_dark_differ_and_switch(visit: Callable[..., Any]) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    light, dark = visit(scheme="light"), visit(scheme="dark")
    papers = light.evaluate(paper), dark.evaluate(paper)
    assert papers[0] != papers[1]
    light.locator("#theme").click()
    assert light.evaluate(paper) == papers[1]
    assert light.evaluate(FAINT_TEXT) == []
    light.locator("#theme").click()
    assert light.evaluate(paper) == papers[0]


@pytest.mark.parametrize(("name", "least"), [("small", 12), ("es", 7), ("cem_rl", 6), ("dvd", 5)])
def test_every_plot_tells_its_values(visit: Callable[..., Any], name: str, least: int) -> None:
    page = visit(name)
    page.evaluate("for (const section of document.querySelectorAll('section details:has(figure)')) section.open = true")
    plots = page.locator(".plot[data-chart]:visible")
    assert plots.count() >= least
    for at in range(plots.count()):
        assert point(page, plots.nth(at), 0.5, 0.5).startswith("Generation ")
        box = page.locator("#tip").bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 1280 and box["y"] >= 0
    page.mouse.move(2, 2)
    page.locator("#tip").wait_for(state="hidden")


def test_a_page_of_eight_members_is_read_in_a_few_screens(visit: Callable[..., Any]) -> None:
    """Details are closed; the width is that of a laptop."""
    assert visit("small").evaluate("document.documentElement.scrollHeight") < 6800


def test_figures_are_saved(visit: Callable[..., Any]) -> None:
    """As a picture, and the numbers behind it as a table."""
    page = visit()
    for section, word, start in (("best", "PNG", b"\x89PNG"), ("fitness", "CSV", b'"generation","best"')):
        saved, name = downloaded(page, page.locator(f"#{section} figure .save button", has_text=word).first)
        assert saved.startswith(start) and name.endswith(word.lower())


def test_a_figure_of_several_plots_is_saved_whole(visit: Callable[..., Any]) -> None:
    page = visit()
    page.evaluate("document.querySelectorAll('#best details').forEach(d => d.open = true)")
    figure = page.locator("#best figure:has(.pair)")
    rows = {plot.bounding_box()["y"] for plot in figure.locator(".plot").all()}
    saved, _ = downloaded(page, figure.locator(".save button", has_text="PNG"))
    assert len(rows) > 1 and int.from_bytes(saved[20:24]) > 2 * (max(rows) - min(rows)), "the height of the picture"


def downloaded(page: Any, button: Any) -> tuple[bytes, str]:
    """What a click on the button saves, and the name of its file."""
    with page.expect_download() as saved:
        button.click()
    return Path(saved.value.path()).read_bytes(), saved.value.suggested_filename


def test_closed_sections_open_from_the_bar(visit: Callable[..., Any]) -> None:
    page = visit()
    closed = page.locator("section > details:not([open])")
    assert closed.count() >= 3 and page.locator("#throughput figure:visible").count() == 0
    page.locator("nav a[href='#experiment']").click()
    page.locator("#experiment pre").first.wait_for(state="visible")
    assert page.locator("#throughput figure:visible").count() == 0
    page.locator("#throughput summary").first.click()
    page.locator("#throughput figure").first.wait_for(state="visible")


def test_tooltips_are_right(visit: Callable[..., Any], reports: dict[str, Path]) -> None:
    """The last generation's best fitness, as the file has it."""
    lines = (reports["small"].parent / "lineage.jsonl").read_text().splitlines()
    best = max(json.loads(line)["fitness"] for line in lines if json.loads(line)["generation"] == 19)
    page = visit()
    told = point(page, page.locator("#fitness .plot"), 0.999, 0.9)
    assert "Generation 20" in told and "655,360" in told and f"{best:.4g}" in told


def test_tooltips_of_the_mean(visit: Callable[..., Any], reports: dict[str, Path]) -> None:
    """The last generation's members and its rank, as the file has them."""
    last = json.loads((reports["es"].parent / "metrics.jsonl").read_text().splitlines()[-1])
    page = visit("es")
    told = point(page, page.locator("#fitness .plot").first, 0.999, 0.9)
    assert "Generation 300" in told and "steps of all members" in told
    for name in ("min", "mean", "max"):
        assert f"{last['members'][f'returns/{name}'][0]:.4g}" in told
    told = point(page, page.locator("#fitness .plot").nth(1), 0.999, 0.9)
    assert told.split()[-1] == f"{last['members']['mean/rank'][0]:.0f}"


def test_one_member_lights_up_everywhere(visit: Callable[..., Any]) -> None:
    page = visit()
    row = page.locator("#members tbody tr").nth(3)
    row.hover()
    hot = page.locator(".hot")
    assert {hot.nth(at).get_attribute("data-m") for at in range(hot.count())} == {row.get_attribute("data-m")}
    assert page.locator("#fitness .hot").count() == 1
    assert page.locator("#hyperparameters .plot:visible .hot").count() == 5
    point(page, page.locator("#fitness .plot"), 0.3, 0.4)
    assert page.locator("#hyperparameters .plot:visible .hot").count() == 5


@pytest.mark.parametrize("name", ["small", "large"])
def test_the_tree_shows_descent(visit: Callable[..., Any], name: str) -> None:
    page = visit(name)
    told = point(page, page.locator("#tree .plot").first, 0.97, 0.5)
    assert "founder" in told and "weights from" in told
    assert page.locator("#tree path.trace").count() == 1
    page.mouse.move(2, 2)
    assert page.locator("#tree path.trace").count() == 0


def test_keyboard_alone(visit: Callable[..., Any]) -> None:
    page = visit()
    page.locator("#fitness .plot").focus()
    page.keyboard.press("ArrowLeft")
    assert "Generation 19" in page.locator("#tip").inner_text()
    page.keyboard.press("ArrowDown")
    assert "member 0" in page.locator("#tip").inner_text()
    page.keyboard.press("Escape")
    assert page.locator("#tip").is_hidden()


def test_the_other_axis(visit: Callable[..., Any]) -> None:
    page = visit()
    figure = page.locator("#hyperparameters figure").first
    before = figure.locator(".plot:visible .y").all_inner_texts()
    button = figure.locator("button.view")
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    assert figure.locator(".plot:visible").count() == 1
    assert figure.locator(".plot:visible .y").all_inner_texts() != before
    button.click()
    assert figure.locator(".plot:visible .y").all_inner_texts() == before


def test_what_the_figures_count_along(visit: Callable[..., Any]) -> None:
    """All at once, where it is known; the family tree counts generations whatever is chosen."""
    page = visit("small")
    told = "plots => plots.map(plot => plot.querySelector('.xt').textContent)"
    buttons = page.locator("#axis button")
    assert buttons.all_text_contents() == ["steps", "generations", "time"]
    assert buttons.nth(0).get_attribute("aria-pressed") == "true"
    for at, label in ((2, "wall-clock time"), (1, "generation"), (0, "environment steps of each member")):
        buttons.nth(at).click()
        assert {*page.eval_on_selector_all("#fitness .plot, #learning .plot, #hyperparameters .plot", told)} == {label}
        assert {*page.eval_on_selector_all("#tree .plot", told)} == {"generation"}
        words = page.locator("#fitness .plot .x").all_text_contents()
        assert len(words) >= 3 and all(word.endswith(" s") for word in words) == (at == 2)
        assert buttons.nth(at).get_attribute("aria-pressed") == "true"


def test_the_table_sorts(visit: Callable[..., Any]) -> None:
    page = visit()
    column = "() => [...document.querySelectorAll('#members tbody tr')].map(r => +r.cells[6].dataset.v)"
    head = page.locator("#members th button", has_text="learning_rate")
    head.click()
    assert page.evaluate(column) == sorted(page.evaluate(column), reverse=True)
    head.click()
    assert page.evaluate(column) == sorted(page.evaluate(column))


def test_readers_of_the_screen_get_words(visit: Callable[..., Any]) -> None:
    page = visit()
    silent = """() => [...document.querySelectorAll('svg')]
        .filter(s => !s.querySelector('title')?.textContent || !s.querySelector('desc')?.textContent).length"""
    assert page.evaluate(silent) == 0
    levels = page.evaluate("() => [...document.querySelectorAll('h1, h2, h3')].map(h => +h.tagName[1])")
    assert levels[0] == 1 and all(after - before <= 1 for before, after in pairwise(levels))
    names = page.evaluate("() => [...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(names) == len(set(names))


def test_paper(visit: Callable[..., Any]) -> None:
    """Printed from a dark screen, the page is dark on white and without its controls."""
    page = visit(scheme="dark")
    page.emulate_media(media="print")
    assert page.locator("nav").is_hidden() and page.locator("#theme").is_hidden()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate(FAINT_TEXT) == []
