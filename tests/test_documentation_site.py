"""The documentation site: it builds without a warning and needs no network."""

import html
import importlib.util
import json
import re
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from py_mini_racer import MiniRacer

ROOT = Path(__file__).resolve().parent.parent
REMOTE = re.compile(r"""<(?:script|img|iframe|video|source)[^>]*\ssrc=["']?(?:https?:)?//|
                        <link[^>]*rel=["']?(?:stylesheet|preload|icon|preconnect)[^>]*href=["']?(?:https?:)?//|
                        @import[^;]*//|url\(["']?(?:https?:)?//""", re.VERBOSE)  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site's folder; strict: a warning, such as a link that leads nowhere, fails the build."""
    folder = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(folder)))
    return folder


def pages(site):
    return {path.relative_to(site).as_posix(): path.read_text(encoding="utf-8") for path in site.rglob("*.html")}


def text_of(page):
    return html.unescape(re.sub(r"<[^>]+>", "", page))


def test_every_page_of_docs_is_there_with_its_figures(site):
    wanted = {
        path.relative_to(ROOT / "docs").with_suffix(".html").as_posix() for path in (ROOT / "docs").rglob("*.md")
    }
    assert (
        wanted | {"index.html", "log.html", "leaderboard.html", "changelog.html", "contributing.html"}
        <= pages(site).keys()
    )
    for name, page in pages(site).items():
        for source in re.findall(r'<img[^>]*src="([^"]+)"', page):
            assert ((site / name).parent / source.split("#")[0]).exists(), (name, source)


def test_every_page_of_docs_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n")[1].split("\ntheme:\n")[0]
    named = set(re.findall(r"[\w./-]+\.md", navigation))
    assert {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")} - named == set()


def test_figures_have_a_version_for_each_palette(site):
    results = pages(site)["results.html"]
    assert "<picture" not in results
    assert results.count("#only-light") == results.count("-dark.png#only-dark") >= 1
    assert results.count('class="light-figure"') == results.count('class="dark-figure"') >= 1


def test_nothing_is_fetched_when_a_page_is_read(site):
    found = {name: REMOTE.findall(page) for name, page in pages(site).items()}
    found |= {path.name: REMOTE.findall(path.read_text(encoding="utf-8")) for path in site.rglob("*.css")}
    assert {name: remote for name, remote in found.items() if remote} == {}


@pytest.mark.parametrize(
    "line", ['<script src="https://a.b/c.js">', "<img alt='' src=//a.b/c.png>", "url(http://a.b/c)"]
)
def test_what_is_fetched_is_found(line):
    assert REMOTE.search(line)


def test_every_fence_became_a_block(site):
    """A fence with an option that the site does not know is shown as text, backticks and all."""
    assert not [name for name, page in pages(site).items() if "```" in text_of(page)]


def test_equations_are_drawn(site):
    assert not [name for name, page in pages(site).items() if "arithmatex" in page]
    for method in ("ppo", "ddpg", "td3", "sac", "tqc", "crossq"):
        assert pages(site)[f"methods/{method}.html"].count("<math") >= 2


def test_functions_keep_their_distance_in_equations():
    mathml, space = hook("equations").mathml, '<mspace width="0.17em"/>'
    assert f"</mi>{space}<mi>log</mi>{space}<mi>" in mathml(r"\alpha \log \pi", "inline")
    assert f"<mi>tanh</mi>{space}<mi>u</mi>" in mathml(r"\tanh u", "inline")
    assert "<mspace" not in mathml(r"\tanh(u)", "inline")
    assert "<mo>&#x0223C;</mo>" in mathml(r"n \sim \pi", "inline")


def test_pages_in_another_language_say_so(site):
    languages = {name: re.search('<html lang="([^"]+)"', page)[1] for name, page in pages(site).items()}
    expected = {"ja": ".ja.html", "zh-Hant": ".zh.html"}
    for name, language in languages.items():
        assert language == next((one for one, ending in expected.items() if name.endswith(ending)), "en"), name
    assert languages["README.ja.html"] == "ja" and "zh-Hant" in languages.values()


def test_flags_and_long_paths_are_broken_where_they_can_be_read():
    marked = hook("narrow_screens").on_page_content
    assert marked("<code>python -m programs --no-gif a-b 1e-5</code>") == (
        '<code>python <span class="flag">-m</span> programs <span class="flag">--no</span>-gif a-b 1e-5</code>'
    )
    assert marked("<code>common/funcs.py</code>") == "<code>common/funcs.py</code>"
    assert marked("<code>common/learning/networks.py</code>") == "<code>common/<wbr>learning/<wbr>networks.py</code>"
    for block in ("<pre><span></span><code>ls -l\n</code></pre>", "<pre><code>ls -l\n</code></pre>"):
        assert marked(block) == block
    words = "a sentence of thirty characters"
    assert marked(f'<td style="a">{words}</td><td>3</td>') == f'<td style="a" class="wordy">{words}</td><td>3</td>'
    assert "wordy" not in marked("<td><code>--a-flag-and-another --that-is-long</code></td>")


def test_tables_of_settings_are_tables_that_a_phone_stacks(site):
    tables = re.findall(r'<div class="settings">\s*<table>', pages(site)["settings.html"])
    assert len(tables) == pages(site)["settings.html"].count("range or choices</th>") >= 10


def hook(name):
    specification = importlib.util.spec_from_file_location(name, ROOT / "docs" / "_site" / f"{name}.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


SEARCH_BOX = """class HTMLInputElement { get value() { return this.typed } set value(text) { this.typed = text } }
const box = new HTMLInputElement(), document = { querySelectorAll: () => [box] };"""


@pytest.mark.parametrize(
    ("typed", "searched"),
    [
        ("--reward-scaling", "reward-scaling"),
        ("plot --kind", "plot kind"),
        ("ppo -ddpg", "ppo -ddpg"),  # the search's own sign for "without this word"
        ("256--256", "256--256"),
    ],
)
def test_flags_are_searched_without_their_dashes(site, typed, searched):
    page = MiniRacer()
    page.eval(SEARCH_BOX + (site / "assets" / "search.js").read_text(encoding="utf-8"))
    assert page.eval(f"box.value = {json.dumps(typed)}; box.value") == searched
    assert page.eval("box.typed") == typed
    assert 'src="assets/search.js"' in pages(site)["index.html"]


def test_japanese_words_and_names_of_files_can_be_searched(site):
    config = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["config"]
    assert config["lang"] == ["en", "ja"] and (site / "assets/javascripts/lunr/min/lunr.ja.min.js").exists()
    assert re.split(config["separator"], "common/funcs.py") == ["common", "funcs", "py"]
    assert re.split(config["separator"], "--gae-lambda 0.97") == ["", "gae", "lambda", "0.97"]


def test_the_search_shows_experiments_and_changes_after_explanations(site):
    found = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    last = {document["location"].split("#")[0] for document in found if document.get("boost", 1) < 1}
    assert {"log.html", "experiments/log/2026-11.html", "changelog.html", "benchmarks/results/faults.html"} <= last
    assert not {name for name in last if not name.startswith(("benchmarks/", "changelog.", "experiments/", "log."))}
