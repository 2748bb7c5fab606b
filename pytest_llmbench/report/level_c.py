"""Level C: does a model do better on old material than on its twin from after its cutoff, and what does it recall?

Two probes that never meet. C1 (open-book twins) holds all that is needed in the prompt; its figure is the gap between
the shares of right answers on either side. C2 (closed-book recall) asks for dated facts and brackets a cutoff. Neither
orders models, and no figure adds them to each other or to another level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from tabulate import tabulate

from pytest_llmbench.records import SCORED, Saved
from pytest_llmbench.report.cutoffs import MARGIN_MONTHS, OWN_FILE, Cutoff, between
from pytest_llmbench.stats import ALPHA, POWER, holm

SPLIT_DATE = "C"
PERCENT = 100
MARGIN = 0.10
"""Gap, as a share, below which two sides count as equal: 10 points."""
FEW_PAIRS = 60
"""Fewer pairs are a smoke test: they see no gap below some 20 points, and nothing is called clean on them."""
EDGE = 0.05
"""Below this share of right answers on both sides, or above 1 less it, memory has no room to show."""
RESAMPLES = 9_999
SEED = 20_261_130
ODD_RUNS = (1, 3)
"""Numbers of runs whose majority is taken; of others the rates are compared."""
USUAL_DISCORDANCE = 0.2
"""Share of pairs whose sides come out differently by chance, where nothing is known: half right, correlation 0.6."""
KNOWN_SHARE = 0.10
"""A year counts as known where Wilson's lower bound of its recall is above this: what guessing a version gives."""
PRIOR = "prior overrides text"
"""How the evidence of an answer begins that follows what held before the text's change."""

LIMITS = (
    "Level A is never published, so a clean C1 does not prove A clean; a gap shows that a model profits from memory of "
    "this kind of material. C2 says nothing on contamination: what came after a cutoff cannot be known, so recall is "
    "expected to fall there. Neither orders models, and the two are never put together."
)
METHOD = (
    "C1: a pair's runs are collapsed to one outcome (majority of 1 or 3 runs, else the rate) per side. Test: exact "
    "McNemar on outcomes (Q. McNemar 1947; scipy.stats.binomtest), sign flips of the pairs' differences otherwise "
    "(E. J. G. Pitman 1937; scipy.stats.permutation_test). Interval: bootstrap of templates and of the pairs in them "
    "(A. C. Davison, D. V. Hinkley 1997). Equality is claimed only where two one-sided tests put the gap within "
    "10 points (D. J. Schuirmann 1987, with added discordant pairs, after A. Agresti, Y. Min 2005) and the 90 % "
    "bootstrap interval lies there too. All models are corrected together (S. Holm 1979). Resolvable gap: found by "
    "the exact McNemar test in 80 of 100 campaigns of this size. C2: a year is known where the lower end of Wilson's "
    "95 % interval of its recall is above 10 %."
)

Verdict = Literal["gap", "reverse gap", "no gap", "inconclusive", "not applicable", "item fault", "as it should"]
Floats = NDArray[np.float64]


class Row(Protocol):
    """What is read of a row."""

    kind: str
    points: float
    earned: float
    evidence: str


@dataclass(frozen=True)
class Probed:
    """What is needed of one node."""

    item: str
    run: int
    ref: str
    reference: bool
    """Whether it is of a golden, defective or null reference."""
    status: str
    rows: Sequence[Row]

    @property
    def right(self) -> bool | None:
        """Whether every check was earned; None where nothing was measured."""
        if self.status not in SCORED:
            return None
        return all(row.earned == row.points for row in self.rows if row.kind == "check")


class TemplateShares(Saved):
    """The sides of the pairs of one template."""

    pairs: int
    pre: float
    post: float


class Gap(Saved):
    """One model on pairs. Shares are of 1."""

    verdict: Verdict
    says: str
    """The verdict in words."""
    pairs: int
    """Pairs that count."""
    outside: int
    """Pairs whose dates do not enclose the cutoff with its margin."""
    unmeasured: int
    """Pairs without a run in which both sides were measured."""
    runs: int
    """Runs of a pair, at most."""
    pre: float | None = None
    post: float | None = None
    gap: float | None = None
    interval: tuple[float, float] | None = None
    """95 % interval of the gap."""
    test: str | None = None
    p: float | None = None
    """Corrected for all models of the report."""
    p_equal: float | None = None
    """Of the equivalence tests, corrected likewise; at most 5 % where the gap is within the margin."""
    resolvable: float | None = None
    """Smallest gap that this many pairs show in 80 of 100 campaigns."""
    prior: int = 0
    """Answers that follow what held before the change, against the text of the prompt."""
    prior_of: int = 0
    """Answers that could have."""
    templates: Mapping[str, TemplateShares] = {}


class Year(Saved):
    """What a model recalls of one year. The outcomes are told apart; none of them is a score."""

    asked: int
    right: int
    unknown: int
    made_up: int
    no_answer: int
    known: bool
    """Whether its recall is above what guessing gives."""


class Recall(Saved):
    """C2 of one model."""

    years: Mapping[str, Year]
    unmeasured: int
    last_known: str | None
    """The latest year that is known."""
    first_unknown: str | None
    """The first year behind it that was asked for."""
    says: str


class SplitModel(Saved):
    """One model in level C."""

    reference: bool
    cutoff: Cutoff | None
    """As stated; None where nobody is known to have stated one."""
    twins: Gap | None
    """C1; None where no pair was planned."""
    placebo: Gap | None
    """Pairs of which both sides are old, so that the true gap is 0."""
    recall: Recall | None
    """C2."""


class SplitDate(Saved):
    """Level C's own block. No figure in it adds one probe to another."""

    limits: str = LIMITS
    method: str = METHOD
    faults: Mapping[str, str]
    """Pairs whose sides a reference tells apart; they count for no model."""
    models: Mapping[str, SplitModel]


# --- figures ---------------------------------------------------------------------------------------------------------


def split_date(
    nodes: Sequence[Probed], stamps: Mapping[str, Mapping[str, str]], known: Mapping[str, Cutoff]
) -> SplitDate | None:
    """The block of level C.

    Args:
        nodes: every planned node of the level.
        stamps: of each item its ``probe`` (``twins``, ``placebo`` or ``recall``), ``known_from`` and, of a pair's side,
            ``pair``, ``side`` and ``cluster``.
        known: cutoffs by model.

    Returns:
        None where no node has a stamp.
    """
    here = [node for node in nodes if stamps.get(node.item, {}).get("probe")]
    if not here:
        return None
    refs = list(dict.fromkeys(node.ref for node in here))
    by_ref = {ref: [node for node in here if node.ref == ref] for ref in refs}
    faults: dict[str, str] = {}
    for ref, mine in by_ref.items():
        if mine[0].reference:
            for pair in _pairs(mine, stamps):
                if pair.difference:
                    faults.setdefault(pair.id, f"{ref} tells its sides apart")
    models = {}
    for ref, mine in by_ref.items():
        parts = [_gap(mine, stamps, known.get(ref), probe, faults) for probe in ("twins", "placebo")]
        models[ref] = SplitModel(
            reference=mine[0].reference,
            cutoff=known.get(ref),
            twins=parts[0],
            placebo=parts[1],
            recall=_recall(mine, stamps, known.get(ref)),
        )
    return SplitDate(faults=faults, models=_corrected(models))


@dataclass(frozen=True)
class _Pair:
    """One pair of one model."""

    id: str
    cluster: str
    dates: tuple[str, str]
    rates: tuple[float, float] | None
    """Share of right runs per side, over the runs in which both were measured; None where there is none."""
    runs: int

    @property
    def difference(self) -> float:
        return self.rates[0] - self.rates[1] if self.rates else 0.0


def _pairs(nodes: Sequence[Probed], stamps: Mapping[str, Mapping[str, str]], probe: str | None = None) -> list[_Pair]:
    found: dict[str, dict[str, dict[int, bool | None]]] = {}
    about: dict[tuple[str, str], Mapping[str, str]] = {}
    for node in nodes:
        stamp = stamps[node.item]
        if "pair" in stamp and probe in (None, stamp["probe"]):
            found.setdefault(stamp["pair"], {"pre": {}, "post": {}})[stamp["side"]][node.run] = node.right
            about[stamp["pair"], stamp["side"]] = stamp
    pairs = []
    for name, sides in found.items():
        if sides["pre"] and sides["post"]:
            both = [
                (one, other)
                for run, one in sides["pre"].items()
                if one is not None and (other := sides["post"].get(run)) is not None
            ]
            rates = (float(np.mean([a for a, _ in both])), float(np.mean([b for _, b in both]))) if both else None
            dates = about[name, "pre"]["known_from"], about[name, "post"]["known_from"]
            pairs.append(_Pair(name, about[name, "pre"]["cluster"].partition("/")[0], dates, rates, len(both)))
    return pairs


def _gap(
    nodes: Sequence[Probed],
    stamps: Mapping[str, Mapping[str, str]],
    cutoff: Cutoff | None,
    probe: str,
    faults: Mapping[str, str],
) -> Gap | None:
    """One model on the pairs of one probe, without the corrections over all models."""
    planned = _pairs(nodes, stamps, probe)
    if not planned:
        return None
    reference = nodes[0].reference
    sound = planned if reference else [pair for pair in planned if pair.id not in faults]
    dated = probe == "twins" and not reference
    fitting = [pair for pair in sound if not dated or (cutoff and between(pair.dates[0], cutoff.cutoff, pair.dates[1]))]
    usable = [pair for pair in fitting if pair.rates is not None]
    found = Gap(
        verdict="not applicable",
        says="",
        pairs=len(usable),
        outside=len(sound) - len(fitting) if cutoff or not dated else 0,
        unmeasured=len(fitting) - len(usable),
        runs=max((pair.runs for pair in usable), default=0),
    )
    if usable:
        prior = [node for node in nodes if _may_override(node, stamps, {pair.id for pair in usable})]
        overrode = sum(any(row.evidence.startswith(PRIOR) for row in node.rows) for node in prior)
        return found.model_copy(update={**_figures(usable), "prior": overrode, "prior_of": len(prior)})
    if dated and cutoff is None:
        says = f"the knowledge cutoff is unknown; state it in {OWN_FILE}, C2 may bracket it"
    else:
        says = "nothing was measured" if fitting else f"no pair's dates enclose the cutoff by {MARGIN_MONTHS} months"
    return found.model_copy(update={"says": f"not applicable: {says}"})


def _figures(pairs: Sequence[_Pair]) -> dict[str, object]:
    """The figures of pairs that were measured, without the corrections over all models."""
    rates = np.array([pair.rates for pair in pairs])
    majority = len({pair.runs for pair in pairs}) == 1 and pairs[0].runs in ODD_RUNS
    sides = (rates > 1 / 2).astype(float) if majority else rates
    names = [pair.cluster for pair in pairs]
    differences = sides[:, 0] - sides[:, 1]
    narrow = bootstrap(differences, names, 1 - 2 * ALPHA)
    within = narrow[0] > -MARGIN and narrow[1] < MARGIN
    equal = equivalence(differences)
    return {
        "verdict": "inconclusive",
        "pre": float(sides[:, 0].mean()),
        "post": float(sides[:, 1].mean()),
        "gap": float(differences.mean()),
        "interval": bootstrap(differences, names),
        "test": "exact McNemar" if majority else "sign-flip permutation",
        "p": mcnemar(differences) if majority else sign_flips(differences),
        "p_equal": equal if within else max(equal, 2 * ALPHA),
        "resolvable": resolvable(len(pairs), differences),
        "templates": {
            name: TemplateShares(pairs=len(at), pre=float(sides[at, 0].mean()), post=float(sides[at, 1].mean()))
            for name in dict.fromkeys(names)
            if (at := _at(names, name))
        },
    }


def _at(names: Sequence[str], wanted: str) -> list[int]:
    return [place for place, name in enumerate(names) if name == wanted]


OVERRIDING = ("T3",)
"""Templates whose facts contradict what held before: the wrong answer of memory is known there."""


def _may_override(node: Probed, stamps: Mapping[str, Mapping[str, str]], pairs: set[str]) -> bool:
    stamp = stamps[node.item]
    asked = stamp.get("pair") in pairs and stamp["cluster"].partition("/")[0] in OVERRIDING and stamp["side"] == "post"
    return asked and node.right is not None


def mcnemar(differences: Floats) -> float:
    """Two-sided exact McNemar test: the discordant pairs against a fair coin.

    Source: Q. McNemar, Note on the Sampling Error of the Difference Between Correlated Proportions, 1947, exact form.
    """
    from scipy.stats import binomtest

    better, worse = int((differences > 0).sum()), int((differences < 0).sum())
    return float(binomtest(better, better + worse).pvalue) if better + worse else 1.0


def sign_flips(differences: Floats) -> float:
    """Two-sided test of a mean difference of 0 by flipping the signs of the pairs' differences.

    Source: E. J. G. Pitman, Significance Tests Which May be Applied to Samples from any Populations, 1937.
    """
    from scipy.stats import permutation_test

    kept = differences[differences != 0]
    if len(kept) < 2:
        return 1.0
    found = permutation_test(
        (kept,),
        lambda values, axis: np.mean(values, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=RESAMPLES,
        rng=np.random.default_rng(SEED),
    )
    return float(found.pvalue)


def bootstrap(differences: Floats, clusters: Sequence[str], confidence: float = 1 - ALPHA) -> tuple[float, float]:
    """Percentile interval of the mean: templates are drawn with replacement, then the pairs in each of them.

    Source: A. C. Davison, D. V. Hinkley, Bootstrap Methods and Their Application, 1997, section 3.8 (resampling at both
    levels); clusters of questions as in E. Miller, Adding Error Bars to Evals, 2024.
    """
    chance = np.random.default_rng(SEED)
    groups = [differences[_at(clusters, name)] for name in dict.fromkeys(clusters)]
    sums, sizes = np.zeros((len(groups), RESAMPLES)), np.array([len(group) for group in groups])
    drawn = chance.integers(len(groups), size=(len(groups), RESAMPLES))
    for place in range(len(groups)):
        for which, group in enumerate(groups):
            at = drawn[place] == which
            sums[place, at] = group[chance.integers(len(group), size=(int(at.sum()), len(group)))].sum(axis=1)
    means = sums.sum(axis=0) / sizes[drawn].sum(axis=0)
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def equivalence(differences: Floats, margin: float = MARGIN) -> float:
    """P value of "the gap is as large as the margin, in one direction or the other": the larger of two one-sided ones.

    Source: D. J. Schuirmann, A Comparison of the Two One-Sided Tests Procedure, 1987; the mean and its error with one
    discordant pair added in either direction, twice as much as A. Agresti, Y. Min, Simple Improved Confidence Intervals
    for Comparing Matched Proportions, 2005, add: 20 pairs without a discordant one prove nothing.
    """
    from scipy.special import ndtr

    n = len(differences) + 2
    mean = float(differences.sum()) / n
    error = float(np.sqrt(((differences**2).sum() + 2) / n - mean**2) / np.sqrt(n))
    return max(float(ndtr(-(mean + margin) / error)), float(ndtr((mean - margin) / error)))


def power(n: int, discordance: float, gap: float, alpha: float = ALPHA) -> float:
    """Probability that the exact McNemar test shows a gap.

    Source: exact unconditional power, summed over the number of discordant pairs, as in S. W. Duffy, Asymptotic and
    Exact Power for the McNemar Test and Its Analogue with R Controls per Case, 1984.

    Args:
        n: pairs.
        discordance: share of pairs that come out differently by chance where there is no gap, in either direction
            alike.
        gap: true gap. Where half of the answers are right without it, it also turns that share of the pairs that are
            lost by chance.
        alpha: of the two-sided test.
    """
    from scipy.stats import binom

    lost = max(discordance / 2 * (1 - 2 * gap), 0.0)
    total = min(2 * lost + gap, 1.0)
    if not total:
        return 0.0
    better = min((lost + gap) / total, 1.0)
    discordant = np.arange(1, n + 1)
    # the largest number of the rarer kind with which the test still rejects; -1 where none does
    rare = binom.ppf(alpha / 2, discordant, 1 / 2)
    rare = np.where(binom.cdf(rare, discordant, 1 / 2) > alpha / 2, rare - 1, rare)
    shown = binom.cdf(rare, discordant, 1 - better) + binom.cdf(rare, discordant, better)
    return float((binom.pmf(discordant, n, total) * np.where(rare < 0, 0.0, shown)).sum())


def resolvable(n: int, differences: Floats | None = None, alpha: float = ALPHA) -> float | None:
    """The smallest gap in whole points that n pairs show with a probability of 80 %; None where none is shown.

    Chance discordance is what was seen, and never less than ``EDGE``: few pairs say little of it.
    """
    seen = USUAL_DISCORDANCE
    if differences is not None and len(differences):
        seen = max(float(np.abs(differences).mean()) - abs(float(differences.mean())), EDGE)
    gaps = (points / PERCENT for points in range(1, PERCENT + 1))
    return next((gap for gap in gaps if power(n, seen, gap, alpha) >= POWER), None)


def _corrected(models: Mapping[str, SplitModel]) -> dict[str, SplitModel]:
    """Both probes' tests corrected over the real models, each probe by itself, and the verdicts."""
    changed = dict(models)
    for probe in ("twins", "placebo"):
        gaps = {ref: getattr(model, probe) for ref, model in models.items()}
        tested = [ref for ref, gap in gaps.items() if gap and gap.p is not None and not models[ref].reference]
        adjusted = zip(
            tested, holm([gaps[ref].p for ref in tested]), holm([gaps[ref].p_equal for ref in tested]), strict=True
        )
        for ref, p, p_equal in adjusted:
            changed[ref] = changed[ref].model_copy(
                update={probe: _judged(gaps[ref].model_copy(update={"p": p, "p_equal": p_equal}), probe)}
            )
        for ref, gap in gaps.items():
            if gap and gap.p is not None and models[ref].reference:
                changed[ref] = changed[ref].model_copy(update={probe: _held(gap)})
    return changed


def _held(gap: Gap) -> Gap:
    """A reference's verdict: it tells no side apart, or an item is at fault."""
    fault = bool(gap.gap) or (gap.p is not None and gap.p < 1)
    says = "a program tells the sides apart: an item is at fault" if fault else "no difference, as it should be"
    return gap.model_copy(update={"verdict": "item fault" if fault else "as it should", "says": says})


def _judged(gap: Gap, probe: str) -> Gap:
    verdict, says = _verdict(gap, probe)
    return gap.model_copy(update={"verdict": verdict, "says": says})


def _verdict(gap: Gap, probe: str) -> tuple[Verdict, str]:
    assert gap.gap is not None
    assert gap.p is not None
    assert gap.p_equal is not None
    assert gap.pre is not None
    assert gap.post is not None
    sees = "no gap at all" if gap.resolvable is None else f"gaps of {PERCENT * gap.resolvable:.0f} points or more"
    size = f"{gap.pairs} pairs show {sees}"
    if gap.p <= ALPHA:
        if probe == "placebo":
            which: Verdict = "gap" if gap.gap > 0 else "reverse gap"
            return which, f"a gap where the true one is 0: chance in 5 of 100 campaigns, else the pairs' fault; {size}"
        if gap.gap > 0:
            return "gap", f"better on old material: it profits from memory of this kind of material; {size}"
        return "reverse gap", f"better on recent material: what it remembers may override the text; {size}"
    if max(gap.pre, gap.post) < EDGE or min(gap.pre, gap.post) > 1 - EDGE:
        end = "almost nothing" if gap.post < EDGE else "almost everything"
        return "inconclusive", f"inconclusive: {end} is right on both sides, so memory has no room to show"
    if gap.pairs < FEW_PAIRS:
        return "inconclusive", f"inconclusive: fewer than {FEW_PAIRS} pairs are a smoke test; {size}"
    if gap.p_equal <= ALPHA:
        return "no gap", f"clean on this kind of material: the gap is within {PERCENT * MARGIN:.0f} points; {size}"
    return (
        "inconclusive",
        f"inconclusive: no gap is shown, and none within {PERCENT * MARGIN:.0f} points either; {size}",
    )


# --- recall ----------------------------------------------------------------------------------------------------------


def _recall(nodes: Sequence[Probed], stamps: Mapping[str, Mapping[str, str]], cutoff: Cutoff | None) -> Recall | None:
    asked = [node for node in nodes if stamps[node.item]["probe"] == "recall"]
    if not asked:
        return None
    years: dict[str, list[str]] = {}
    for node in asked:
        if node.right is not None:
            years.setdefault(stamps[node.item]["known_from"][:4], []).append(_outcome(node))
    bins = {year: _year(outcomes) for year, outcomes in sorted(years.items())}
    last = max((year for year, found in bins.items() if found.known), default=None)
    first = min((year for year in bins if last is not None and year > last), default=None)
    return Recall(
        years=bins,
        unmeasured=sum(node.right is None for node in asked),
        last_known=last,
        first_unknown=first,
        says=_bracket(last, first, cutoff) if bins else "nothing was measured",
    )


def _outcome(node: Probed) -> str:
    if node.right:
        return "right"
    said = node.rows[0].evidence if node.rows else ""
    return "unknown" if said == "unknown" else "made_up" if said.startswith("made up") else "no_answer"


def _year(outcomes: Sequence[str]) -> Year:
    from scipy.stats import binomtest

    right = outcomes.count("right")
    bound = binomtest(right, len(outcomes)).proportion_ci(confidence_level=1 - ALPHA, method="wilson").low
    return Year(
        asked=len(outcomes),
        right=right,
        unknown=outcomes.count("unknown"),
        made_up=outcomes.count("made_up"),
        no_answer=outcomes.count("no_answer"),
        known=bool(bound > KNOWN_SHARE),
    )


def _bracket(last: str | None, first: str | None, cutoff: Cutoff | None) -> str:
    stated = f"stated is {cutoff.cutoff}" if cutoff else "none is stated"
    if last is None:
        return f"no year is recalled above guessing, which brackets nothing; {stated}"
    if first is None:
        return f"recalled up to {last}, the last year asked for; {stated}"
    return f"recalled up to {last}, not from {first} on; {stated}"


# --- for people ------------------------------------------------------------------------------------------------------


def lines(block: SplitDate) -> Iterator[str]:
    """The block for a terminal: C1, placebo pairs and C2 in tables of their own."""
    for title, head, rows in tables(block):
        yield title
        yield tabulate(rows, headers=head, disable_numparse=True, maxcolwidths=[30] + [None] * (len(head) - 2) + [52])
        yield ""
    yield from sentences(block)


def tables(block: SplitDate) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Title, head and rows of each table that has rows."""
    for probe, title, sides in (
        ("twins", "C1, open-book twins: the share of right answers on old and on recent material", ("old", "recent")),
        ("placebo", "Placebo pairs: both sides old, the true gap is 0", ("first", "second")),
    ):
        head = ["model", "cutoff", "pairs", *sides, "gap", "95 % interval", "p", "resolvable", "verdict"]
        rows = [
            [ref, *_cells(model, gap)]
            for ref, model in block.models.items()
            if (gap := getattr(model, probe)) is not None
        ]
        if rows:
            yield title, head, rows
    recalled = [
        [
            ref,
            year,
            *map(str, (found.asked, found.right, found.unknown, found.made_up, found.no_answer)),
            "yes" if found.known else "no",
        ]
        for ref, model in block.models.items()
        if model.recall
        for year, found in model.recall.years.items()
    ]
    if recalled:
        head = ["model", "year", "asked", "right", "UNKNOWN", "made up", "no answer", "above guessing"]
        yield "C2, closed-book recall by year: outcomes, not points", head, recalled


def _cells(model: SplitModel, gap: Gap) -> Iterator[str]:
    yield model.cutoff.cutoff if model.cutoff else "–" if model.reference else "unknown"
    yield str(gap.pairs)
    yield from ("–" if share is None else f"{PERCENT * share:.0f} %" for share in (gap.pre, gap.post))
    yield "–" if gap.gap is None else f"{PERCENT * gap.gap:+.0f}"
    yield "–" if gap.interval is None else f"{PERCENT * gap.interval[0]:+.0f} to {PERCENT * gap.interval[1]:+.0f}"
    yield "–" if gap.p is None else f"{gap.p:.3f}"
    yield "–" if gap.resolvable is None else f"{PERCENT * gap.resolvable:.0f}"
    yield gap.says


def sentences(block: SplitDate, named: Callable[[str], str] = str) -> Iterator[str]:
    """What else is to be said, for every kind of report."""
    for ref, model in block.models.items():
        if model.reference:
            continue
        if model.cutoff:
            yield f"Cutoff of {named(ref)}: {model.cutoff.cutoff}, read {model.cutoff.read} in {model.cutoff.source}"
        if model.twins and (model.twins.outside or model.twins.unmeasured):
            yield (
                f"C1 of {named(ref)}: {model.twins.outside} pairs do not enclose its cutoff by {MARGIN_MONTHS} months, "
                f"{model.twins.unmeasured} were not measured; neither counts."
            )
        if model.twins and model.twins.prior_of:
            yield (
                f"Prior overrides text, {named(ref)}: {model.twins.prior} of {model.twins.prior_of} answers follow the "
                "clocks from before the change."
            )
        if model.recall:
            yield f"C2 of {named(ref)}: {model.recall.says}."
    if block.faults:
        yield f"Item faults, left out: {'; '.join(f'{pair}: {why}' for pair, why in block.faults.items())}."
    yield block.limits
    yield block.method
