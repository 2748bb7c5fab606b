"""Level C's statistics: what counts for whom, and what may be said of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from report.campaigns import campaign

from pytest_llmbench.records import Record
from pytest_llmbench.report.build import PlannedItem, Report, write_report
from pytest_llmbench.report.cutoffs import OWN_FILE, Cutoff, between, cutoffs, registry
from pytest_llmbench.report.level_c import (
    Probed,
    SplitDate,
    bootstrap,
    equivalence,
    lines,
    mcnemar,
    power,
    resolvable,
    sign_flips,
    split_date,
)
from pytest_llmbench.report.markdown import markdown
from pytest_llmbench.report.page import write_page
from pytest_llmbench.report.tables import summary
from pytest_llmbench.store.folder import PLAN, RunFolder, StoreError

CUTOFF = Cutoff(names=["m*"], cutoff="2024-06", source="a card", read="2026-11-30")
Answers = Callable[[int, str, int], bool | None]
"""Whether the answer of pair, side and run is right; None where it was not measured."""


def stamps(
    pairs: int, probe: str = "twins", dates: tuple[str, str] = ("2020-05", "2026-08")
) -> dict[str, dict[str, str]]:
    return {
        f"{probe}{number}{side}": {
            "probe": probe,
            "pair": f"{probe}{number}",
            "side": side,
            "cluster": f"T{number % 6 + 1}/x",
            "known_from": known,
        }
        for number in range(pairs)
        for side, known in zip(("pre", "post"), dates, strict=True)
    }


def node(item: str, run: int, ref: str, right: bool | None, evidence: str = "", reference: bool = False) -> Probed:
    row: Any = SimpleNamespace(kind="check", points=1.0, earned=float(bool(right)), evidence=evidence)
    return Probed(item, run, ref, reference, "runtime_error" if right is None else "measured", [row])


def asked(
    about: Mapping[str, Mapping[str, str]], answers: Answers, ref: str = "m", runs: int = 1, reference: bool = False
) -> list[Probed]:
    return [
        node(
            item, run, ref, answers(int(stamp["pair"].lstrip("twinsplacebo")), stamp["side"], run), reference=reference
        )
        for item, stamp in about.items()
        for run in range(1, runs + 1)
    ]


def block(nodes: list[Probed], about: Mapping[str, Mapping[str, str]], known: Mapping[str, Cutoff]) -> SplitDate:
    found = split_date(nodes, about, known)
    assert found is not None
    return found


def half(number: int, side: str, run: int) -> bool:
    return number % 5 < 2


def memory(number: int, side: str, run: int) -> bool:
    return number % 5 < 2 or (side == "pre" and number % 7 < 2)


def chance_model(gap: float, seed: int, spread: float = 0.4) -> Answers:
    """Half right, with sides that go together in all but a part of the pairs."""
    draw = np.random.default_rng(seed)
    base, own, apart = draw.random(1000), draw.random((1000, 2)), draw.random((1000, 2)) < spread

    def answers(number: int, side: str, run: int) -> bool:
        which = int(side == "post")
        level = own[number, which] if apart[number, which] else base[number]
        return bool(level < 0.5 + gap * (1 - which))

    return answers


# --- what counts -----------------------------------------------------------------------------------------------------


def test_a_pair_counts_only_where_its_dates_enclose_the_cutoff_with_three_months() -> None:
    assert between("2024-03", "2024-06", "2024-09")
    assert not between("2024-04", "2024-06", "2024-09")
    assert not between("2024-03", "2024-06", "2024-08")
    assert between("2023-12", "2024-03", "2024-12")


def test_an_unknown_cutoff_makes_c1_not_applicable_and_leaves_placebos_alone() -> None:
    about = {**stamps(80), **stamps(80, "placebo", ("2016-01", "2020-01"))}
    found = block(asked(about, half), about, {}).models["m"]
    assert found.twins is not None
    assert found.twins.verdict == "not applicable"
    assert OWN_FILE in found.twins.says
    assert found.twins.gap is None
    assert found.placebo is not None
    assert found.placebo.pairs == 80
    assert found.placebo.gap == 0


def test_pairs_outside_of_the_dates_are_counted_and_left_out() -> None:
    about = {
        **stamps(70),
        **{f"x{k}": {**v, "pair": f"9{v['pair'][5:]}"} for k, v in stamps(5, dates=("2024-05", "2026-08")).items()},
    }
    found = block(asked(about, half), about, {"m": CUTOFF}).models["m"].twins
    assert found is not None
    assert (found.pairs, found.outside) == (70, 5)


def test_what_was_not_measured_on_one_side_counts_on_neither() -> None:
    about = stamps(70)
    found = (
        block(
            asked(about, lambda number, side, run: None if number == 4 and side == "post" else True),
            about,
            {"m": CUTOFF},
        )
        .models["m"]
        .twins
    )
    assert found is not None
    assert (found.pairs, found.unmeasured, found.pre) == (69, 1, 1.0)


def test_pairs_that_a_reference_tells_apart_are_item_faults_and_count_for_nobody() -> None:
    about = stamps(70)
    wrong = asked(about, lambda number, side, run: not (number == 3 and side == "post"), "golden", reference=True)
    found = block([*wrong, *asked(about, half)], about, {"m": CUTOFF})
    assert list(found.faults) == ["twins3"]
    assert found.models["m"].twins is not None
    assert found.models["m"].twins.pairs == 69
    assert found.models["golden"].twins is not None
    assert found.models["golden"].twins.verdict == "item fault"


# --- what may be said ------------------------------------------------------------------------------------------------


def test_memory_is_shown_as_a_gap_with_its_size() -> None:
    about = stamps(120)
    found = block(asked(about, memory), about, {"m": CUTOFF}).models["m"].twins
    assert found is not None
    assert found.verdict == "gap"
    assert found.gap == pytest.approx(0.17, abs=0.02)
    assert found.interval is not None
    assert found.interval[0] > 0
    assert "memory of this kind of material" in found.says


def test_no_difference_on_many_pairs_is_equality_and_on_few_is_inconclusive() -> None:
    for pairs, verdict in ((120, "no gap"), (40, "inconclusive")):
        about = stamps(pairs)
        found = block(asked(about, half), about, {"m": CUTOFF}).models["m"].twins
        assert found is not None
        assert found.verdict == verdict
        assert (verdict == "inconclusive") == found.says.startswith("inconclusive")


def test_noise_without_a_gap_that_is_too_wide_for_equality_is_inconclusive() -> None:
    about = stamps(120)
    found = block(asked(about, chance_model(0.05, 3, spread=1)), about, {"m": CUTOFF}).models["m"].twins
    assert found is not None
    assert found.verdict == "inconclusive"
    assert found.says.startswith("inconclusive: no gap is shown, and none within 10 points either")


@pytest.mark.parametrize("right", [True, False])
def test_at_the_floor_and_at_the_ceiling_nothing_is_called_clean(right: bool) -> None:
    about = stamps(120)
    found = block(asked(about, lambda number, side, run: right), about, {"m": CUTOFF}).models["m"].twins
    assert found is not None
    assert found.verdict == "inconclusive"
    assert "no room" in found.says


def test_models_are_corrected_together() -> None:
    about = stamps(120)
    alone = block(asked(about, memory), about, {"m": CUTOFF}).models["m"].twins
    nodes = [one for ref in ("m", "m2", "m3") for one in asked(about, memory if ref == "m" else half, ref)]
    together = block(nodes, about, dict.fromkeys(("m", "m2", "m3"), CUTOFF)).models["m"].twins
    assert alone is not None
    assert together is not None
    assert alone.p is not None
    assert together.p == pytest.approx(3 * alone.p)


def test_three_runs_are_a_majority_and_two_are_rates() -> None:
    about = stamps(90)
    for runs, test in ((1, "exact McNemar"), (3, "exact McNemar"), (2, "sign-flip permutation")):
        found = block(asked(about, memory, runs=runs), about, {"m": CUTOFF}).models["m"].twins
        assert found is not None
        assert (found.test, found.runs) == (test, runs)
        assert found.verdict == "gap"


def test_prior_knowledge_that_overrides_the_text_is_counted() -> None:
    about = stamps(60)
    nodes = [
        node(item, 1, "m", False, "prior overrides text: answered x")
        if stamp["cluster"].startswith("T3") and stamp["side"] == "post"
        else node(item, 1, "m", True)
        for item, stamp in about.items()
    ]
    found = block(nodes, about, {"m": CUTOFF})
    assert found.models["m"].twins is not None
    assert (found.models["m"].twins.prior, found.models["m"].twins.prior_of) == (10, 10)
    assert any("Prior overrides text, m: 10 of 10" in line for line in lines(found))


# --- recall ----------------------------------------------------------------------------------------------------------


def test_recall_brackets_a_cutoff_and_is_no_score() -> None:
    about = {
        f"r{year}{k}": {"probe": "recall", "known_from": f"{year}-06"} for year in range(2020, 2027) for k in range(10)
    }

    def outcome(item: str) -> Probed:
        year = int(item[1:5])
        if year <= 2023:
            return node(item, 1, "m", True, "right")
        return node(item, 1, "m", False, "unknown" if item.endswith("1") else "made up: SOMETHING")

    found = block([outcome(item) for item in about], about, {"m": CUTOFF}).models["m"]
    assert found.recall is not None
    assert (found.recall.last_known, found.recall.first_unknown) == ("2023", "2024")
    assert found.recall.says == "recalled up to 2023, not from 2024 on; stated is 2024-06"
    assert (found.recall.years["2025"].unknown, found.recall.years["2025"].made_up) == (1, 9)
    assert found.twins is None


def test_a_model_that_recalls_nothing_brackets_nothing() -> None:
    about = {f"r{k}": {"probe": "recall", "known_from": "2020-06"} for k in range(10)}
    found = block([node(item, 1, "m", item == "r1", "made up: X") for item in about], about, {}).models["m"].recall
    assert found is not None
    assert found.last_known is None
    assert found.says.startswith("no year is recalled above guessing")


# --- the statistics --------------------------------------------------------------------------------------------------


def test_mcnemar_is_the_fair_coin_on_discordant_pairs() -> None:
    assert mcnemar(np.array([1.0] * 8 + [-1.0] + [0.0] * 50)) == pytest.approx(2 * (1 + 9) / 2**9)
    assert mcnemar(np.zeros(30)) == 1.0


def test_sign_flips_agree_with_mcnemar_on_outcomes() -> None:
    values = np.array([1.0] * 9 + [-1.0] * 2 + [0.0] * 40)
    assert sign_flips(values) == pytest.approx(mcnemar(values), abs=0.01)
    assert sign_flips(np.zeros(9)) == 1.0


def test_power_is_that_of_simulated_campaigns() -> None:
    """For half right sides with correlation 0.6: 60 pairs see 20 points, 120 see 15, 200 see 10."""
    assert power(60, 0.2, 0.20) == pytest.approx(0.78, abs=0.06)
    assert power(120, 0.2, 0.15) == pytest.approx(0.85, abs=0.06)
    assert power(200, 0.2, 0.10) == pytest.approx(0.78, abs=0.06)
    assert power(120, 0.2, 0.0) <= 0.05
    assert power(3, 0.2, 0.3) == 0.0


def test_more_pairs_resolve_a_smaller_gap() -> None:
    assert resolvable(3) is None
    found = [resolvable(n) for n in (40, 80, 160)]
    assert all(one is not None for one in found)
    assert found == sorted(found, reverse=True)


def test_equality_is_not_certain_because_nothing_was_discordant() -> None:
    assert equivalence(np.zeros(20)) > 0.05
    assert equivalence(np.zeros(120)) < 0.01
    assert equivalence(np.array([1.0] * 20 + [0.0] * 100)) > 0.5


def test_the_interval_is_the_same_again_and_wider_where_templates_differ() -> None:
    clusters = [f"T{number // 20}" for number in range(120)]
    even = np.array([1.0 if number % 6 == 0 else 0.0 for number in range(120)])
    lumped = np.array([1.0 if number < 20 else 0.0 for number in range(120)])
    assert bootstrap(even, clusters) == bootstrap(even, clusters)
    wide, narrow = (np.diff(bootstrap(values, clusters))[0] for values in (lumped, even))
    assert wide > 2 * narrow


def test_placebo_pairs_of_models_without_a_gap_are_rarely_called_different() -> None:
    about = stamps(60, "placebo", ("2016-01", "2020-01"))
    called = 0
    for seed in range(40):
        found = block(asked(about, chance_model(0.0, seed)), about, {}).models["m"].placebo
        assert found is not None
        called += found.verdict in ("gap", "reverse gap")
    assert called <= 5


def test_real_gaps_of_thirty_points_are_found() -> None:
    about = stamps(120)
    verdicts = [
        block(asked(about, chance_model(0.3, seed)), about, {"m": CUTOFF}).models["m"].twins for seed in range(10)
    ]
    assert [one.verdict for one in verdicts if one] == ["gap"] * 10


# --- the registry ----------------------------------------------------------------------------------------------------


def test_the_packaged_registry_names_its_sources_and_knows_no_unstated_cutoff(tmp_path: Path) -> None:
    known = registry(tmp_path)
    assert all(entry.source and entry.read for entry in known)
    found = cutoffs(["llama3.2:3b", "gguf:/x/SmolLM2-135M-Instruct-Q8_0.gguf", "qwen3:4b", "gemma3:4b"], known)
    assert {ref: entry.cutoff for ref, entry in found.items()} == {
        "llama3.2:3b": "2023-12",
        "gguf:/x/SmolLM2-135M-Instruct-Q8_0.gguf": "2024-06",
        "gemma3:4b": "2024-08",
    }


def test_the_users_file_comes_first(tmp_path: Path) -> None:
    (tmp_path / OWN_FILE).write_text(
        '[[models]]\nnames = ["smollm2*", "house*"]\ncutoff = "2025-01"\nsource = "own"\nread = "2026-12-01"\n',
        encoding="utf-8",
    )
    found = cutoffs(["smollm2:135m", "house:1b"], registry(tmp_path))
    assert {entry.cutoff for entry in found.values()} == {"2025-01"}


@pytest.mark.parametrize(
    "text", ["[[models]]\nnames = []\n", "models = 3\n", "[[models]\n", '[[models]]\nname = ["a"]\ncutoff = "2024"\n']
)
def test_a_broken_file_of_the_user_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / OWN_FILE).write_text(text, encoding="utf-8")
    with pytest.raises(StoreError, match=OWN_FILE):
        registry(tmp_path)


# --- the report ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, Report]:
    """A run of levels A and C whose items of C are a pair, a pair of placebos and two questions of recall."""
    folder = campaign(tmp_path_factory.mktemp("c") / "run", ["smollm2:135m", "house:1b"], levels=("A", "C"), chars=200)
    about = [*stamps(2).values(), *stamps(1, "placebo", ("2016-01", "2020-01")).values()]
    about += [{"probe": "recall", "known_from": f"{year}-06"} for year in (2020, 2026)]
    plan = build_plan(folder)
    names = [name for name, item in plan["items"].items() if item["level"] == "C"]
    for name, stamp in zip(names, about, strict=False):
        plan["items"][name] = PlannedItem(**{**plan["items"][name], "probe": stamp}).model_dump()
    folder.write(PLAN, plan)
    return folder, write_report(folder)


def build_plan(folder: RunFolder) -> dict[str, Any]:
    import json

    found: dict[str, Any] = json.loads((folder.path / PLAN).read_text(encoding="utf-8"))
    return found


def test_level_c_has_no_points_of_its_own_and_changes_nothing_of_level_a(measured: tuple[RunFolder, Report]) -> None:
    _, report = measured
    level, other = report.levels["C"], report.levels["A"]
    assert level is not None
    assert other is not None
    assert level.split_date is not None
    assert level.analysis is None
    assert level.points_max == 0
    for model in level.models.values():
        assert (model.points_mean, model.points_min, model.points_max) == (None, None, None)
        assert all(run.points is None for run in model.runs)
    assert other.split_date is None
    assert all(model.points_mean is not None for model in other.models.values())


def test_every_report_shows_both_probes_apart_and_says_why_nothing_can_be_said(
    measured: tuple[RunFolder, Report],
) -> None:
    folder, report = measured
    texts = ["\n".join(summary(report)), markdown(report), write_page(folder).read_text(encoding="utf-8")]
    for text in texts:
        flat = " ".join(text.replace("|", " ").split())
        assert "C1, open-book twins" in flat
        assert "Placebo pairs" in flat
        assert "C2, closed-book recall by year" in flat
        assert "a clean C1 does not prove A clean" in flat
        assert "cutoff is unknown" in flat or "unknown" in flat
        assert "inconclusive" in flat


def test_a_record_of_level_c_is_an_ordinary_record(measured: tuple[RunFolder, Report]) -> None:
    folder, report = measured
    level = report.levels["C"]
    assert level is not None
    assert all(Record.model_validate(record) for record in folder.records())
    assert {entry.points is not None for m in level.models.values() for r in m.runs for entry in r.items.values()} == {
        True
    }
