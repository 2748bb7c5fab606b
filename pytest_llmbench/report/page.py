"""The report as one HTML file that opens from disk: no network, no file beside it needed, nothing a model wrote runs.

What stands on every page is plain HTML. A node's page (rows, evidence, conversation) is packed: rendered and escaped
here, compressed, and unpacked by the browser when it is opened.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from pytest_llmbench.records import SCORED, Record, Transcript, Turn
from pytest_llmbench.report import level_c
from pytest_llmbench.report.build import LevelModel, LevelReport, Plan, Report, ReportItem, build_report
from pytest_llmbench.report.calibration import CALIBRATION, block_notes, table
from pytest_llmbench.report.figures import Analysis, level_title
from pytest_llmbench.report.notes import (
    Node,
    analysis_lines,
    cautions,
    conditions,
    facts,
    level_cautions,
    nodes_of,
    unmeasured,
)
from pytest_llmbench.report.picture import lines_of, scale_of
from pytest_llmbench.report.shown import cut, level_of, visible
from pytest_llmbench.report.tables import points
from pytest_llmbench.store.folder import (
    ENVIRONMENT,
    MANIFEST,
    PLAN,
    REPORT,
    RunFolder,
    StoreError,
    node_stem,
    read_json,
)

PAGE = "report.html"
PAGE_BYTES = 4_900_000
"""Size that the page is kept under by cutting conversations, unless its tables alone are larger."""
PACKED_RATIO = 2
"""Characters of conversation that a packed byte holds, as a first estimate."""
SHRINK = 0.8
"""Where an estimate was too high, the next one goes this much below what the overrun asks for."""
SAMPLE = 50
"""Nodes that an estimate is tried on before all are packed."""
SHORTEST = 200
"""Characters that are left of a conversation, however many there are."""
FIELD_CHARS = 1_500
"""Characters of an evidence, a reason or any other single field that are shown."""
LONG_NAME = 24
"""Characters from which on the name of a model may be broken into lines."""
HEAT_STEPS = 10
"""Shades of a cell's background."""
NODES_HERE = "<!-- nodes -->"
"""Where the shell is opened for the nodes; no escaped text can hold it."""


def write_page(folder: RunFolder, archived: str | None = None) -> Path:
    """Write ``report.html`` into a run folder, from its report (made anew where there is none) and its files.

    Args:
        folder: the run.
        archived: why its figures never stand beside current ones (``archive.archived``); None where they may.

    Returns:
        The file.

    Raises:
        StoreError: where the run cannot be read or the file not be written.
    """
    return folder.write_text(PAGE, page(folder, saved_report(folder), archived))


def saved_report(folder: RunFolder) -> Report:
    """The report of a run folder as it was written; made from its records where it was not.

    Raises:
        StoreError: where neither can be read.
    """
    path = folder.path / REPORT
    if not path.exists():
        return build_report(folder)
    try:
        return Report.model_validate(read_json(path))
    except ValueError as error:
        raise StoreError(f"{path}: not a report this version can read; `llmbench report` makes it anew") from error


def page(folder: RunFolder, report: Report, archived: str | None = None) -> str:
    """The HTML of a report, as ``write_page`` writes it."""
    environment = _environment(folder, report)
    shell = environment.get_template("page.html.j2").render(
        lines={level: lines_of(content) for level, content in report.levels.items() if content is not None},
        archived=archived,
        conditions=conditions(report),
        cautions=list(cautions(report)),
        unmeasured=unmeasured(report),
        edges=[node for node in nodes_of(report) if node.entry.edge],
        documents={name: _document(folder, name) for name in (MANIFEST, ENVIRONMENT)},
        script=Markup(_source(environment, "page.js")),
        style=Markup(_source(environment, "page.css")),
        script_hash=_csp_hash(_source(environment, "page.js")),
        style_hash=_csp_hash(_source(environment, "page.css")),
    )
    before, _, after = shell.partition(NODES_HERE)
    return "".join((before, *_nodes(folder, report, environment, PAGE_BYTES - len(shell.encode())), after))


def _environment(folder: RunFolder, report: Report) -> Environment:
    environment = Environment(
        loader=PackageLoader("pytest_llmbench.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.filters.update(points=points, cut=cut, field=_field, heat=_heat, name=_name, url=quote)
    environment.tests["scored"] = SCORED.__contains__
    environment.globals.update(
        stem=lambda item, run, ref: node_stem(item, report.variant, run, ref),
        scale_of=scale_of,
        entries=_entries,
        row_means=_row_means,
        earned_in=_earned_in,
        item_points=lambda level, item: next(entry.points_max for entry in _everywhere(level, item)),
        titles=_titles(folder),
        report=report,
        level_title=level_title,
        level_cautions=lambda level: list(level_cautions(report, level)),
        facts=lambda level: list(facts(report, level)),
        analysis_lines=lambda analysis: list(analysis_lines(analysis)),
        untold=_untold,
        largest_part=_largest_part,
        split_date_tables=lambda block: list(level_c.tables(block)),
        split_date_sentences=lambda block: list(level_c.sentences(block)),
        calibration_table=lambda block, name: list(table(block, name)),
        calibration_notes=lambda block: list(block_notes(block)),
    )
    return environment


def _titles(folder: RunFolder) -> dict[str, str]:
    try:
        plan = Plan.model_validate(read_json(folder.path / PLAN))
    except (StoreError, ValueError):
        return {}
    return {item: planned.title for item, planned in plan.items.items()}


def _finalize(value: object) -> object:
    """Every value on its way into the page: texts lose what is invisible; what is None is shown as not known."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value)
    return "–" if value is None else value


def _field(text: object) -> str:
    return cut(str(text), FIELD_CHARS)


def _name(ref: str) -> Markup:
    """A model's name, which may be long: it can be broken where a path or a tag begins."""
    name = escape(visible(ref))
    if len(name) > LONG_NAME:
        name = name.replace("/", Markup("/<wbr>")).replace(":", Markup("<wbr>:"))
    return Markup("<bdi>{}</bdi>").format(name)


def _heat(share: float) -> str:
    """Class of a cell by its share of the points."""
    return f"h{round(HEAT_STEPS * share)}"


def _source(environment: Environment, name: str) -> str:
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


def _csp_hash(source: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}"


def _document(folder: RunFolder, name: str) -> Mapping[str, Any]:
    try:
        return read_json(folder.path / name)
    except StoreError as error:
        return {"not readable": str(error).replace(str(folder.path), ".")}


# --- figures of an item ----------------------------------------------------------------------------------------------


def _entries(model: LevelModel, item: str) -> dict[int, ReportItem]:
    """A model's nodes of an item, by run."""
    return {run.run: run.items[item] for run in model.runs if item in run.items}


def _everywhere(level: LevelReport, item: str) -> Iterator[ReportItem]:
    for model in level.models.values():
        yield from _entries(model, item).values()


def _row_means(entries: Mapping[int, ReportItem]) -> dict[str, float]:
    """Mean points of each row over the runs that were measured."""
    earned: dict[str, list[float]] = {}
    for entry in entries.values():
        for row in entry.rows:
            earned.setdefault(row.id, []).append(row.earned)
    return {name: sum(figures) / len(figures) for name, figures in earned.items()}


def _largest_part(analysis: Analysis) -> float:
    """The largest share of an item, which fills its bar."""
    parts = [part for item in analysis.items.values() for part in (item.between, item.noise) if part is not None]
    return max(parts, default=1.0)


def _untold(level: LevelReport, item: str) -> list[tuple[str, str]]:
    """Rows of an item that carry no information, each with who earned it; one entry where all of them are alike."""
    analysis = level.analysis
    if analysis is None or len(analysis.models) < 2:
        return []
    rows = [(name, "by all") for name in analysis.rows_all] + [(name, "by none") for name in analysis.rows_none]
    own = [(name.removeprefix(f"{item} "), who) for name, who in rows if name.startswith(f"{item} ")]
    alike = {who for _, who in own}
    whole = len(own) > 1 and len(own) == len(_earned_in(level, item))
    return [(f"all {len(own)} rows", alike.pop())] if whole and len(alike) == 1 else own


@dataclass
class RowTotal:
    """One row of an item over all measured nodes of a level."""

    id: str
    title: str
    kind: str
    points: float
    full: int = 0
    none: int = 0
    nodes: int = 0


def _earned_in(level: LevelReport, item: str) -> list[RowTotal]:
    """Each row of an item, with how many nodes earned it in full and how many got nothing."""
    totals: dict[str, RowTotal] = {}
    for entry in _everywhere(level, item):
        for row in entry.rows:
            total = totals.setdefault(row.id, RowTotal(row.id, row.title, row.kind, row.points))
            total.nodes += 1
            total.full += row.earned == row.points
            total.none += row.earned == 0
    return list(totals.values())


# --- nodes -----------------------------------------------------------------------------------------------------------


@dataclass
class Texts:
    """How long the texts are that may have to be cut."""

    conversations: dict[str, int] = field(default_factory=dict)
    """By node."""
    prompts: dict[str, tuple[str, int]] = field(default_factory=dict)
    """By key: the node that the prompt is taken from, and its length. Models share the prompts of an instance."""

    def limit(self, total: int) -> int:
        """Characters for each text, so that all stay within ``total``."""
        lengths = [*self.conversations.values(), *(length for _, length in self.prompts.values())]
        return max(level_of(lengths, total), SHORTEST)


def _nodes(folder: RunFolder, report: Report, environment: Environment, room: int) -> Sequence[str]:
    """The packed pages of every node and every prompt, in ``room`` bytes where cutting can reach that."""
    nodes = [(node, node_stem(node.item, report.variant, node.run, node.ref)) for node in nodes_of(report)]
    texts = _lengths(folder, [stem for node, stem in nodes if node.level != CALIBRATION])
    limit = texts.limit(room * PACKED_RATIO)
    for step in (max(len(nodes) // SAMPLE, 1), 1):
        while True:
            some = nodes[::step]
            parts = [part for node, stem in some for part in _node(folder, environment, node, stem, texts, limit)]
            size, goal = sum(map(len, parts)), room * len(some) // max(len(nodes), 1)
            if size <= goal or limit == SHORTEST:
                break
            limit = max(int(limit * SHRINK * goal / size), SHORTEST)
    return parts


def _lengths(folder: RunFolder, stems: Sequence[str]) -> Texts:
    texts = Texts()
    for stem in stems:
        said = _saved(folder.transcript, stem)
        if isinstance(said, Transcript):
            prompt, turns = _parts(said)
            texts.conversations[stem] = sum(map(_length, turns))
            texts.prompts.setdefault(_key(prompt), (stem, sum(map(_length, prompt))))
    return texts


def _node(
    folder: RunFolder, environment: Environment, node: Node, stem: str, texts: Texts, limit: int
) -> Iterator[str]:
    """The packed page of a node, and that of its prompt where it is the first node that has it."""
    said, record = _saved(folder.transcript, stem), _saved(folder.record, stem)
    if node.level == CALIBRATION:
        said = None
    prompt, turns = _parts(said) if isinstance(said, Transcript) else ([], [])
    key = _key(prompt)
    if prompt and texts.prompts[key][0] == stem:
        html = environment.get_template("prompt.html.j2").render(turns=prompt, limit=_each(prompt, limit))
        yield f'<script type="text/plain" id="{key}">{_packed(html)}</script>\n'
    html = environment.get_template("node.html.j2").render(
        node=node,
        stem_=stem,
        record=record if isinstance(record, Record) else None,
        said=said if isinstance(said, Transcript) else None,
        unreadable=[problem for problem in (said, record) if isinstance(problem, str)],
        prompt=key if prompt else None,
        turns=turns,
        limit=_each(turns, limit),
        is_cut=sum(map(_length, turns)) > limit,
        files=[
            name
            for name in (f"transcripts/{stem}.json", f"records/{stem}.json", f"deliveries/{stem}/delivery.json")
            if (folder.path / name).exists()
        ],
    )
    yield f'<section id="{stem}" class="page"><script type="text/plain">{_packed(html)}</script></section>\n'


def _saved(load: Callable[[str], Record | None] | Callable[[str], Transcript | None], stem: str) -> object:
    """What is saved of a node, None where nothing is, and the problem as text where it cannot be read."""
    try:
        return load(stem)
    except StoreError as error:
        return str(error).rpartition(f"{stem}.json")[2].lstrip(": ") or "it cannot be read"


def _parts(said: Transcript) -> tuple[Sequence[Turn], Sequence[Turn]]:
    """What was asked first, and all that followed."""
    first = next((number for number, turn in enumerate(said.turns) if turn.role == "assistant"), len(said.turns))
    return said.turns[:first], said.turns[first:]


def _length(turn: Turn) -> int:
    return len(turn.content) + len(turn.thinking)


def _each(turns: Sequence[Turn], limit: int) -> int:
    """Characters for each text of a conversation that has ``limit`` characters."""
    return level_of([length for turn in turns for length in (len(turn.content), len(turn.thinking))], limit)


def _key(prompt: Sequence[Turn]) -> str:
    said = "\0".join("\0".join((turn.role, turn.content, *turn.images)) for turn in prompt)
    return f"prompt-{hashlib.sha256(said.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _packed(html: str) -> str:
    return base64.b64encode(zlib.compress(html.encode(), 9)).decode()
