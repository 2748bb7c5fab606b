"""The HTML report: what stands in it, what cannot get out of it, how it behaves in a browser."""

from __future__ import annotations

import base64
import random
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report.campaigns import campaign, nodes_shown, prose
from report.chromium import Page, chromium, program

from pytest_llmbench.report.page import PAGE, PAGE_BYTES, saved_report, write_page
from pytest_llmbench.report.picture import Scale
from pytest_llmbench.report.shown import cut, level_of, visible
from pytest_llmbench.store.folder import REPORT, RunFolder, StoreError, node_stem

HOSTILE = (
    "</script></pre><script>document.title = 'owned'; fetch('http://127.0.0.1:9/out')</script>"
    "<img src=http://127.0.0.1:9/x onerror=alert(1)> <a href='javascript:alert(1)'>go</a> <!-- nodes --> {{ 7 * 7 }}"
    "<style>body { display: none }</style> \u202egnp.exe \x00 \x1b[2J \u200b \ud800 <base href=http://127.0.0.1:9/>"
)


def hostile(chance: random.Random, chars: int) -> str:
    return HOSTILE + prose(chance, chars)


def written(folder: RunFolder, archived: str | None = None) -> str:
    return write_page(folder, archived).read_text(encoding="utf-8")


def part(html: str, name: str) -> str:
    """One page of the file."""
    return html.split(f'<section id="{name}"', 1)[1].split("<section", 1)[0]


class Elements(HTMLParser):
    """Names and attributes of everything in a document."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return campaign(tmp_path_factory.mktemp("small"), 3, 2, unmeasured=True, levels=("A", "B"))


@pytest.fixture(scope="module")
def html(small: RunFolder) -> str:
    return written(small)


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    names = ["good:1b", "<script>alert(1)</script>`|\u202e" + "x" * 300]
    return campaign(tmp_path_factory.mktemp("attacked"), names, 1, say=hostile, chars=2_000)


def test_the_ranking_shows_places_intervals_and_every_run(small: RunFolder, html: str) -> None:
    level = part(html, "level-A")
    content = saved_report(small).levels["A"]
    assert content is not None
    assert content.analysis is not None
    assert content.analysis.ranking is not None
    for summary in content.analysis.models.values():
        assert summary.interval is not None
        assert f"{summary.interval[0]:.2f}–{summary.interval[1]:.2f}" in level
        assert f"<b>{summary.mean:.2f}</b>" in level
    for place in content.analysis.ranking:
        assert f'<td class="number">{place.place}' in level
    assert level.count('<line class="interval"') == len(content.models)
    assert level.count('<line class="run"') == sum(len(model.runs) for model in content.models.values())
    assert level.count('<circle class="mean"') == len(content.models)


def test_what_the_items_tell_is_a_table_and_every_pair_a_line(small: RunFolder, html: str) -> None:
    level = part(html, "level-A")
    content = saved_report(small).levels["A"]
    assert content is not None
    assert content.analysis is not None
    told = level.split('id="told-A"')[1].split("</table>")[0]
    assert all(f'href="#item-{item}"' in told for item in content.items)
    for row in (*content.analysis.rows_all, *content.analysis.rows_none):
        assert f"{row.split()[1]} <span" in told
    pairs = level.split('id="pairs-A"')[1].split("<tbody>")[1].split("</table>")[0]
    assert pairs.count("<tr>") == len(content.analysis.pairs) == 3
    assert f"Noise floor {content.analysis.noise_floor:.2f} points" in level
    assert content.analysis.method[:40] in level


def test_an_archived_run_says_so_above_every_page(tmp_path: Path) -> None:
    text = written(campaign(tmp_path, 1, 1), "Archived: made with another <harness>.")
    assert '<p class="caution banner">Archived: made with another &lt;harness&gt;.</p>' in text
    assert "banner" not in written(RunFolder(tmp_path)).split("<body>")[1]


def test_after_one_run_no_interval_is_drawn(tmp_path: Path) -> None:
    level = part(written(campaign(tmp_path, 2, 1)), "level-A")
    assert level.count('<line class="interval"') == 0
    assert level.count('<circle class="mean"') == 2
    assert "95 % interval" not in level


def test_references_stand_below_the_models_without_interval_or_place(tmp_path: Path) -> None:
    level = part(written(campaign(tmp_path, ["golden", "null:echo", "a:1b", "b:1b"], 2)), "level-A")
    names = re.findall(r'<th scope="row"><bdi>([^<]*)', level.split("</table>")[0])
    assert names[2:] == ["golden", "null:echo"]
    assert level.count('<line class="interval"') == 2
    assert level.count('<circle class="mean"') == 4


def test_a_model_that_lacks_a_node_has_no_figure_in_the_picture(tmp_path: Path) -> None:
    folder = campaign(tmp_path, 2, 1, unmeasured=True)
    level = part(written(folder), "level-A")
    assert level.count("not measured in whole") == 1
    assert level.count("<b>1</b> of 11") == 1


@pytest.mark.parametrize(
    ("profile", "runs", "said"),
    [("smoke", 3, "these points order nothing"), ("standard", 1, "One run is no result")],
)
def test_a_report_that_ranks_nothing_says_so(tmp_path: Path, profile: str, runs: int, said: str) -> None:
    assert said in part(written(campaign(tmp_path, 2, runs, profile=profile)), "level-A")


def test_a_smoke_report_shows_the_noise_and_gives_no_places(tmp_path: Path) -> None:
    level = part(written(campaign(tmp_path, 3, 2, profile="smoke")), "level-A")
    assert "Place" not in level
    assert "95 % interval" in level


def test_levels_have_pages_of_their_own_and_share_none(html: str) -> None:
    for level, other in (("A", "B"), ("B", "A")):
        page = part(html, f"level-{level}")
        assert f"#item-{level}01" in page
        assert f"#item-{other}01" not in page
    assert "Place" not in part(html, "level-B")
    assert "orders nothing" in part(html, "level-B")


def test_every_item_and_every_node_has_a_page(small: RunFolder, html: str) -> None:
    report = saved_report(small)
    wanted = {
        node_stem(item, 0, run.run, ref)
        for level in report.levels.values()
        if level
        for ref, model in level.models.items()
        for run in model.runs
        for item in run.items
    }
    assert set(nodes_shown(html)) == wanted
    assert all(
        f'<section id="item-{item}"' in html for level in report.levels.values() if level for item in level.items
    )


def test_every_link_inside_the_page_leads_somewhere(small: RunFolder, html: str) -> None:
    everything = Elements(html).found + [it for page in nodes_shown(html).values() for it in Elements(page).found]
    names = {attributes["id"] for _, attributes in everything if "id" in attributes}
    links = {str(attributes["href"]) for tag, attributes in everything if tag == "a"}
    inside = {link[1:] for link in links if link.startswith("#")}
    assert inside <= names
    assert all((small.path / link).is_file() for link in links if not link.startswith("#"))


def test_a_node_shows_rows_evidence_repairs_faults_caps_and_the_conversation(small: RunFolder, html: str) -> None:
    pages = nodes_shown(html)
    records = list(small.records())
    repaired = next(record for record in records if record["repairs"])
    near = next(record for record in records if record["edge"])
    agent = next(record for record in records if record["agent"] and record["rows"])

    def of(record: dict[str, object]) -> str:
        return pages[node_stem(str(record["item"]), 0, int(str(record["run"])), str(record["ref"]))]

    assert repaired["repairs"][0] in of(repaired)
    assert "85 %" in of(near)
    assert "80 % or more of max_tokens" in of(near)
    page = of(agent)
    assert all(row["evidence"] in page and row["title"] in page for row in agent["rows"])
    assert page.count("fault: timeout") == 1
    assert "at call 4" in page
    assert "never" in page
    assert len(re.findall(r"<h3>Turn \d", page)) == agent["agent"]["turns"]
    assert "41.5" in page


def test_an_unmeasured_node_has_its_reason_and_no_points(small: RunFolder, html: str) -> None:
    lost = next(record for record in small.records() if record["points"] is None)
    stem = node_stem(lost["item"], 0, lost["run"], lost["ref"])
    assert lost["reason"] in nodes_shown(html)[stem]
    assert " points" not in nodes_shown(html)[stem]
    assert f'href="#{stem}"' in part(html, "notes")


def test_the_whole_manifest_is_there(html: str) -> None:
    page = part(html, "manifest")
    assert all(word in page for word in ("bank", "signature", "llmbench.manifest/1", "environment.json", "9.2.0"))


def test_a_torn_transcript_is_said_and_costs_no_other_page(tmp_path: Path) -> None:
    folder = campaign(tmp_path, 2, 1)
    torn = sorted((tmp_path / "transcripts").glob("*.json"))[0]
    torn.write_text('{"schema": ')
    pages = nodes_shown(written(folder))
    assert "cannot be read" in pages[torn.stem]
    assert str(tmp_path) not in pages[torn.stem]
    assert sum("cannot be read" in page for page in pages.values()) == 1


def test_a_missing_report_is_made_and_a_foreign_one_is_refused(tmp_path: Path) -> None:
    folder = campaign(tmp_path, 1, 1)
    (tmp_path / REPORT).unlink()
    assert "level-A" in written(folder)
    (tmp_path / REPORT).write_text('{"schema": "llmbench.report/0"}')
    with pytest.raises(StoreError, match="llmbench report"):
        write_page(folder)


def test_what_a_model_wrote_is_text_and_nothing_else(attacked: RunFolder) -> None:
    html = written(attacked)
    shell = Elements(html).found
    pages = [Elements(page).found for page in nodes_shown(html).values()]
    scripts = [attributes for tag, attributes in shell if tag == "script" and attributes.get("type") != "text/plain"]
    assert scripts == [{}]
    tags = {tag for page in pages for tag, _ in page}
    assert not tags & {"script", "img", "style", "base", "iframe", "object", "form", "svg"}
    attributes = [attributes for page in [shell, *pages] for _, attributes in page]
    assert not any(name.startswith("on") for one in attributes for name in one)
    links = [str(one["href"]) for one in attributes if "href" in one]
    assert all(re.match(r"#|transcripts/|records/|deliveries/", link) for link in links)


def test_nothing_invisible_reaches_the_page(attacked: RunFolder) -> None:
    html = written(attacked)
    everything = html + "".join(nodes_shown(html).values())
    assert not {char for char in everything if not char.isprintable()} - {"\n", "\t"}
    assert "⟨U+202E⟩" in everything
    assert "⟨U+0000⟩" in everything
    assert "⟨U+D800⟩" in everything


def test_megabytes_of_noise_stay_within_the_size(tmp_path: Path) -> None:
    def noise(chance: random.Random, chars: int) -> str:
        return base64.b85encode(chance.randbytes(chars)).decode()

    folder = campaign(tmp_path, 1, 1, say=noise, chars=600_000)
    html = written(folder)
    assert len(html.encode()) <= PAGE_BYTES
    assert "characters left out" in next(iter(nodes_shown(html).values()))


def test_short_conversations_are_shown_in_whole(html: str) -> None:
    pages = nodes_shown(html)
    assert all("Nothing is cut here" in page or "Left out: the question is other" in page for page in pages.values())
    assert sum("Nothing is cut here" in page for page in pages.values()) > 1


@given(st.text(st.characters()))
def test_visible_leaves_what_can_be_seen_and_nothing_else(text: str) -> None:
    shown = visible(text)
    assert not [char for char in shown if not char.isprintable() and char not in "\n\t"]
    assert [char for char in text if char.isprintable()] == [
        char for char in re.sub(r"⟨U\+[0-9A-F]{4,}⟩", "", shown) if char.isprintable()
    ] or "⟨U+" in text


@given(st.text(), st.integers(0, 50))
def test_a_cut_text_keeps_both_ends_and_says_what_is_missing(text: str, limit: int) -> None:
    shown = cut(text, limit)
    if len(text) <= limit:
        assert shown == text
    else:
        head, _, tail = shown.partition(f"\n[… {len(text) - limit:,} of {len(text):,} characters left out …]\n")
        assert text.startswith(head)
        assert text.endswith(tail)
        assert len(head) + len(tail) == limit


@given(st.lists(st.integers(0, 10_000)), st.integers(0, 100_000))
def test_the_level_fills_the_room_and_not_more(lengths: list[int], total: int) -> None:
    level = level_of(lengths, total)
    assert sum(min(length, level) for length in lengths) <= total
    if sum(lengths) > total:
        assert sum(min(length, level + 1) for length in lengths) > total
    else:
        assert level == max(lengths, default=0)


@given(st.lists(st.floats(0, 10_000), min_size=1, max_size=20))
def test_a_scale_holds_every_point_between_few_round_marks(points: list[float]) -> None:
    scale = Scale.over(points)
    assert scale.low <= min(points) <= max(points) <= scale.high
    assert 2 <= len(scale.ticks) <= 12
    assert all(0 <= float(scale.at(point).rstrip("%")) <= 100 for point in points)


# --- in a browser ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    if program() is None:
        pytest.skip("no Chromium is installed on this machine")
    with chromium(tmp_path_factory.mktemp("profile")) as page:
        yield page


def address(folder: RunFolder, fragment: str = "") -> str:
    if not (folder.path / PAGE).exists():
        written(folder)
    return (folder.path / PAGE).as_uri() + fragment


def headings(browser: Page) -> list[str]:
    """Headings of the pages that are shown."""
    return list(
        browser.ask("[...document.querySelectorAll('h1')].filter((it) => it.offsetParent).map((it) => it.innerText)")
    )


def test_one_page_is_shown_at_a_time_and_links_go_to_the_others(browser: Page, small: RunFolder) -> None:
    stem = next(path.stem for path in sorted((small.path / "records").glob("*.json")))
    browser.open(address(small))
    assert headings(browser) == ["Level A"]
    for fragment, heading in (
        ("#level-B", "Level B"),
        ("#item-A05", "A05"),
        (f"#{stem}", "A01 run 1"),
        ("#notes", "Notes"),
    ):
        browser.go(fragment)
        assert [one[: len(heading)] for one in headings(browser)] == [heading]
        assert browser.ask("document.title").startswith(heading)
    browser.ask("void history.back()")
    browser.ask("new Promise((done) => setTimeout(done, 100))")
    assert headings(browser)[0].startswith("A01 run 1")
    assert browser.complaints == []


def test_a_line_of_an_item_can_be_linked(browser: Page, small: RunFolder) -> None:
    browser.open(address(small, "#item-A05-2"))
    assert headings(browser)[0].startswith("A05")
    assert browser.ask("document.querySelector('tr:target') !== null")


def test_an_unknown_place_shows_the_first_page(browser: Page, small: RunFolder) -> None:
    browser.open(address(small, "#%E0%A4%A"))
    assert headings(browser) == ["Level A"]
    assert browser.complaints == []


def test_the_prompt_opens_on_demand(browser: Page, small: RunFolder) -> None:
    stem = next(path.stem for path in sorted((small.path / "records").glob("*.json")))
    browser.open(address(small, f"#{stem}"))
    place = "document.querySelector(':target [data-prompt]')"
    assert browser.ask(f"{place}.innerText") == ""
    browser.ask(f"void ({place}.parentElement.open = true)")
    browser.ask("new Promise((done) => setTimeout(done, 200))")
    assert "Follow the task exactly." in browser.ask(f"{place}.innerText")


def test_nothing_leaves_the_page_and_nothing_hostile_runs(browser: Page, attacked: RunFolder) -> None:
    for path in sorted((attacked.path / "records").glob("*.json"))[:4]:
        browser.open(address(attacked, f"#{path.stem}"))
        browser.ask("void document.querySelectorAll('details').forEach((it) => (it.open = true))")
        browser.ask("new Promise((done) => setTimeout(done, 200))")
        assert browser.requests == [(attacked.path / PAGE).as_uri()]
        assert browser.complaints == []
        assert "owned" not in browser.ask("document.title")
        assert "</script></pre><script>" in browser.ask("document.querySelector(':target').innerText")
        assert browser.ask("[...document.querySelectorAll(':target :is(script, img, style, base)')].length") == 0


def test_a_script_that_got_in_would_not_run(browser: Page, small: RunFolder) -> None:
    browser.open(address(small))
    browser.ask("""void (() => {
        const script = document.createElement("script");
        script.textContent = "document.title = 'owned'";
        document.body.append(script);
        document.querySelector("h1").innerHTML += "<img src=x onerror=\\"document.title = 'owned'\\">";
    })()""")
    browser.ask("new Promise((done) => setTimeout(done, 100))")
    assert browser.ask("document.title") != "owned"
    assert len(browser.requests) == 1


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_pages_fit_the_screen_and_can_be_read(browser: Page, small: RunFolder, width: int, dark: bool) -> None:
    browser.look(width, 800, dark=dark)
    stem = next(path.stem for path in sorted((small.path / "records").glob("*.json")))
    browser.open(address(small))
    for fragment in ("#level-A", "#item-A08", f"#{stem}", "#notes", "#models", "#manifest"):
        browser.go(fragment)
        assert browser.ask("document.documentElement.scrollWidth <= innerWidth"), fragment
        assert browser.ask(CONTRAST) == [], fragment


CONTRAST = """(() => {
    const parse = (color) => color.match(/[\\d.]+/g).map(Number);
    const over = ([r, g, b, a = 1], under) => [r, g, b].map((value, n) => value * a + under[n] * (1 - a));
    const light = (color) => {
        const [r, g, b] = color.map((v) => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = (node) => {
        const own = parse(getComputedStyle(node).backgroundColor);
        const under = () => (node.parentElement ? ground(node.parentElement) : [255, 255, 255]);
        return own[3] === undefined ? own : over(own, under());
    };
    const poor = [];
    for (const node of document.querySelectorAll("body *")) {
        const speaks = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
        if (!speaks || !node.offsetParent) continue;
        const [first, second] = [light(parse(getComputedStyle(node).color).slice(0, 3)), light(ground(node))];
        const ratio = (Math.max(first, second) + 0.05) / (Math.min(first, second) + 0.05);
        if (ratio < 4.5) poor.push([node.tagName, node.className, ratio, node.innerText.slice(0, 40)]);
    }
    return poor;
})()"""
"""What is shown with a contrast below 4.5 to 1 (WCAG 2.1, criterion 1.4.3)."""


def test_tables_have_heads_and_wide_ones_are_reached_by_keyboard(browser: Page, small: RunFolder) -> None:
    browser.open(address(small))
    assert browser.ask(
        "[...document.querySelectorAll('table')].every((it) => it.tHead?.querySelector('th[scope=col]'))"
    )
    assert browser.ask("[...document.querySelectorAll('tbody tr')].every((it) => it.querySelector('th[scope=row]'))")
    assert browser.ask("[...document.querySelectorAll('.wide')].every((it) => it.tabIndex === 0)")
    assert browser.ask("[...document.querySelectorAll('svg')].every((it) => it.getAttribute('aria-label'))")
