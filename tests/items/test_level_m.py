"""Level M: answers before pictures, one picture one reading, and nothing for those who do not look."""

from __future__ import annotations

import random
import tomllib
from collections import Counter
from dataclasses import replace
from itertools import permutations

import pytest
from PIL import Image

from pytest_llmbench import drawing
from pytest_llmbench.bank import load_bank, packaged_bank
from pytest_llmbench.campaign.validate import RUNS, score_references
from pytest_llmbench.drawing import canvas, pinned, pixels
from pytest_llmbench.grading.grade import delivery_of, grade
from pytest_llmbench.harness.frozen import Profile
from pytest_llmbench.harness.references import reply_text
from pytest_llmbench.harness.single import opening
from pytest_llmbench.spec import Reference, Unavailable

ITEMS = {item.spec.id: item for item in load_bank(packaged_bank() / "level_m")}
each = pytest.mark.parametrize("item", ITEMS.values(), ids=ITEMS.keys())
SEEDS = 12
GUESSED = 60
PRIOR_SEEDS = 500
"""Instances over which the best answer without a look is searched; the search itself finds about one in a hundred."""


def lost(item, instance, reference):
    delivery = delivery_of(item.spec, reply_text(reference))
    return {row.id for row in grade(item.task, instance, delivery).rows if row.earned < row.points}


def settled(item, seed):
    return item.task.settle(random.Random(seed))


def test_there_are_six_designs_that_need_vision():
    assert list(ITEMS) == ["M01", "M02", "M03", "M04", "M05", "M06"]
    assert all(item.spec.needs == ("vision",) and item.spec.points == 10 for item in ITEMS.values())


@each
def test_every_reference_earns_what_it_should(item):
    assert [finding.wrong for finding in score_references(item, 1) if finding.wrong] == []


@each
def test_the_published_pictures_are_pinned(item):
    pins = tomllib.loads((item.side("fixtures") / "pixels.toml").read_text(encoding="utf-8"))
    assert pins == {f"run{run}": pixels(item.build(0, run).images[0]) for run in RUNS}


@each
def test_an_instance_has_one_picture_and_is_the_same_every_time(item):
    one, again, other = item.build(5, 1), item.build(5, 1), item.build(6, 1)
    assert len(one.images) == 1
    assert (one.prompt, one.images, one.data) == (again.prompt, again.images, again.data)
    assert pixels(one.images[0]) != pixels(other.images[0])


@each
def test_the_prompt_gives_no_answer_away(item):
    """Between two instances nothing differs in the prompt but names of what to look at."""
    one = item.build(0, 1)
    assert all(f" {value}" not in one.prompt for value in one.answers.values() if value > 100)
    if item.spec.id not in ("M05", "M06"):
        assert one.prompt == item.build(1, 1).prompt


def changed(name, data, chance):
    """The same drawing with one thing in it moved by one unit: (new drawing, rows that must change)."""
    if name == "M01":
        place, at = chance.randrange(4), chance.randrange(6)
        code = data.codes[place]
        new = code[:at] + chance.choice([s for s in "ACEFHJKLMNPRTUWXY3479" if s != code[at]]) + code[at + 1 :]
        return replace(data, codes=(*data.codes[:place], new, *data.codes[place + 1 :]))
    if name == "M02":
        half = chance.choice(["upper", "lower"])
        shapes = list(getattr(data, half))
        shapes.pop(chance.randrange(len(shapes)))
        return replace(data, **{half: tuple(shapes)})
    if name == "M03":
        series = chance.choice(["upper", "north", "south"])
        values = list(getattr(data, series))
        values[chance.randrange(len(values))] += 10
        return replace(data, **{series: tuple(values)})
    if name == "M04":
        place = chance.randrange(4)
        return (*data[:place], replace(data[place], minute=(data[place].minute + 1) % 60), *data[place + 1 :])
    if name == "M05":
        place = chance.randrange(2)
        table = data[place]
        number = chance.choice(table.added)
        item, depot, boxes, weight = table.lines[number]
        lines = (*table.lines[:number], (item, depot, boxes + 1, weight), *table.lines[number + 1 :])
        return (*data[:place], replace(table, lines=lines), *data[place + 1 :])
    row = chance.choice(data.starts)
    cell = data.path(row)[-2]
    return data.turned(
        cell, chance.choice([name for name in ("left", "right", "up", "down") if name != data.cells[cell]])
    )


@each
@pytest.mark.parametrize("seed", range(SEEDS))
def test_one_unit_in_the_drawing_changes_the_picture_and_the_golden_answer(item, seed):
    instance = item.build(seed, 1)
    before = instance.data["drawn"]
    after = changed(item.spec.id, before, random.Random(seed))
    assert item.task.draw(after).tobytes() != item.task.draw(before).tobytes()
    moved = replace(instance, data={"drawn": after}, answers=answers_of(item, after))
    assert lost(item, moved, item.task.golden(instance))
    assert lost(item, instance, item.task.golden(instance)) == set()


def answers_of(item, data):
    found = item.task.answers(data) if hasattr(item.task, "answers") else {}
    return {key: value or 0 for key, value in found.items()}


def rows_of(item, data):
    """Per row what must be said to earn it."""
    task, name = item.task, item.spec.id
    if name == "M01":
        return dict(zip(task.ROWS, data.codes, strict=True))
    right = task.answers(data)
    rows = {row: tuple(right[key] for key in keys) for row, keys in (task.SUMS if name == "M05" else task.ROWS).items()}
    if name == "M05":
        rows |= {row: tuple(table.line.values()) for row, table in zip(task.LINES, data, strict=True)}
    return rows


@each
def test_the_best_answer_of_one_who_never_looks_earns_next_to_nothing(item):
    """What a blank picture leaves: the answer to each row that is right most often over many instances."""
    said = [rows_of(item, settled(item, seed)) for seed in range(PRIOR_SEEDS if item.spec.id != "M06" else 100)]
    best = {row.id: max(Counter(one[row.id] for one in said).values()) / len(said) for row in item.spec.rows}
    expected = sum(float(row.points) * best[row.id] for row in item.spec.rows)
    assert expected <= float(item.spec.points) * Profile().limit("null_share")


@each
def test_a_guesser_at_an_empty_picture_earns_next_to_nothing(item):
    """The control: what one gets who says of an empty picture what would be right of another one."""
    said = [rows_of(item, settled(item, seed)) for seed in range(GUESSED)]
    pairs = list(permutations(said, 2))
    chance = {row.id: sum(one[row.id] == other[row.id] for one, other in pairs) / len(pairs) for row in item.spec.rows}
    expected = sum(float(row.points) * chance[row.id] for row in item.spec.rows)
    assert expected <= float(item.spec.points) * Profile().limit("null_share") / 2


@each
def test_an_empty_picture_is_a_picture_for_all_but_the_pixels(item):
    blank, _ = canvas()
    instance = replace(item.build(3, 1), images=(drawing.png(blank),))
    assert opening(instance)[-1].images == instance.images
    assert opening(instance)[-1].content == opening(item.build(3, 1))[-1].content


@each
@pytest.mark.parametrize("text", ["", "[]", "{}", "[1, [2]]", "[" * 5000, "\x00", "A\nB\nC\nD\nE", "ANSWER 1: 1e400\n"])
def test_any_delivery_is_graded(item, text):
    instance = item.build(0, 1)
    reference = Reference(files=dict.fromkeys(item.spec.files, text)) if item.spec.files else Reference(text=text)
    delivery = delivery_of(item.spec, reply_text(reference))
    assert sum(row.earned for row in grade(item.task, instance, delivery).rows) == 0


def test_codes_are_read_without_regard_to_case_blanks_and_empty_lines():
    item = ITEMS["M01"]
    instance = item.build(0, 1)
    text = "\n\n".join(f"  {code.lower()} " for code in instance.data["drawn"].codes)
    assert lost(item, instance, Reference(files={"codes.txt": text})) == set()


def test_a_truth_value_is_no_number_in_a_table():
    item = ITEMS["M05"]
    instance = item.build(0, 1)
    drawn = instance.data["drawn"]
    assert not item.task._equal({**drawn[0].line, "boxes": True}, {**drawn[0].line, "boxes": 1})


def test_hands_of_a_clock_never_hide_each_other():
    task = ITEMS["M04"].task
    for seed in range(200):
        for time in settled(ITEMS["M04"], seed):
            short, long = time.angles
            assert min(abs(short - long), 360 - abs(short - long)) >= task.APART


def test_paths_have_the_lengths_their_rows_promise():
    task = ITEMS["M06"].task
    for seed in range(20):
        grid = settled(ITEMS["M06"], seed)
        lengths = [len(grid.path(row)) - 1 for row in grid.starts]
        assert all(low <= lengths[place] <= high for place in range(6) for low, high in [task.LENGTHS[place // 2]])
        assert len(set(task.answers(grid).values())) == 6


def test_another_pillow_gives_no_picture_instead_of_another_one(monkeypatch):
    monkeypatch.setattr(drawing, "TEST_CARD", "0" * 64)
    drawing._check.cache_clear()
    try:
        with pytest.raises(Unavailable, match=r"draws other pixels than Pillow .* pip install pillow=="):
            ITEMS["M01"].build(0, 1)
    finally:
        drawing._check.cache_clear()


def test_a_picture_that_is_not_the_published_one_is_none(tmp_path):
    pins = tmp_path / "pixels.toml"
    pins.write_text(f'run1 = "{"0" * 64}"\n')
    image = Image.new("RGB", (8, 8))
    with pytest.raises(Unavailable, match="run 1 is not the published one"):
        pinned(pins, 0, 1, image)
    assert pixels(pinned(pins, 1, 1, image)) == pixels(pinned(pins, 0, 2, image))
