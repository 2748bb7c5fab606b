"""What makes a call worthless as a measurement, and what is read off one that is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmbench.bank import Item, load_bank, packaged_bank
from pytest_llmbench.campaign.agents import messages_of
from pytest_llmbench.campaign.measure import speed
from pytest_llmbench.campaign.models import speeds_stable
from pytest_llmbench.harness.frozen import PROFILES, Profile, delivery_form, harness
from pytest_llmbench.harness.single import ask, check_fit, estimate, opening, truncation
from pytest_llmbench.runtimes.base import Message, ModelCard, Reply, Request, RuntimeFailure, Usage
from pytest_llmbench.spec import AnswersSpec

CASES = Path(__file__).parents[1] / "fieldcases"
ITEMS = [item for item in load_bank(packaged_bank()) if item.spec.level != "B"]
STANDARD = Profile()


def case(name: str, file: str) -> dict:
    return json.loads((CASES / name / file).read_text(encoding="utf-8"))


class Scripted:
    """A server's side of one call."""

    ref, endpoint = "scripted", None

    def __init__(self, reply: Reply, counted: int | None = None) -> None:
        self.reply, self.counted, self.requests = reply, counted, []

    def open(self) -> ModelCard:
        return ModelCard("scripted", "scripted")

    def count_tokens(self, messages: list[Message]) -> int | None:
        return self.counted

    def chat(self, request: Request) -> Reply:
        self.requests.append(request)
        return self.reply

    def close(self) -> None:
        return None


def call(runtime: Scripted, text: str, context: int | None, cap: int = 100):
    messages = [Message("system", ""), Message("user", text)]
    return ask(messages, cap, 11, runtime, ModelCard("scripted", "scripted", context=context), STANDARD, lambda _: None)


def test_a_prompt_cut_to_half_of_the_window_is_noticed() -> None:
    meta = case("42-prompt-cut-to-half-window", "request_meta.json")
    counted = case("42-prompt-cut-to-half-window", "response.json")["prompt_eval_count"]
    guess = meta["prompt_chars"] // STANDARD.count("characters_per_token")
    assert truncation(counted, guess, meta["options"]["num_ctx"], None, STANDARD)


def test_a_cut_prompt_leaves_the_node_unmeasured_and_keeps_the_reply() -> None:
    runtime = Scripted(Reply("It looks like part of a file.", usage=Usage(prompt_tokens=4098)))
    with pytest.raises(RuntimeFailure) as caught:
        call(runtime, "word " * 6000, 8192)
    assert caught.value.status == "prompt_truncated"
    assert caught.value.turn.content == "It looks like part of a file."


@pytest.mark.parametrize(
    ("counted", "guess", "window", "previous"),
    [(512, 900, 512, None), (270, 4000, 8192, None), (4098, 10300, 8192, None), (700, 800, 8192, 750)],
)
def test_signs_of_a_cut_prompt(counted: int, guess: int, window: int, previous: int | None) -> None:
    assert truncation(counted, guess, window, previous, STANDARD)


@given(st.integers(min_value=100, max_value=8000), st.floats(min_value=0.6, max_value=1.6))
def test_a_whole_prompt_is_never_taken_for_a_cut_one_in_a_window_of_twice_its_size(guess: int, ratio: float) -> None:
    counted = int(guess * ratio)
    assert truncation(counted, guess, 2 * max(guess, counted) + 100, None, STANDARD) is None
    assert truncation(None, guess, guess, None, STANDARD) is None


def test_a_window_divided_by_slots_refuses_what_does_not_fit() -> None:
    have = case("43-slots-divide-the-context", "props.json")["default_generation_settings"]["n_ctx"]
    plan = case("43-slots-divide-the-context", "plan.json")
    runtime = Scripted(Reply(""), counted=plan["largest_prompt_tokens"])
    with pytest.raises(RuntimeFailure, match=r"context_too_small.*4124 tokens.*2048") as caught:
        check_fit([Message("user", "x")], plan["max_tokens"], runtime, ModelCard("m", "openai", context=have), STANDARD)
    assert caught.value.status == "unsupported"


def test_a_reply_that_filled_the_window_is_not_measured() -> None:
    runtime = Scripted(Reply("half", stop_reason="context_full", usage=Usage(prompt_tokens=20, completion_tokens=3)))
    with pytest.raises(RuntimeFailure, match="context_full") as caught:
        call(runtime, "short", 4096)
    assert caught.value.status == "unsupported"


def test_the_history_starts_with_a_system_message_and_states_the_form_once() -> None:
    for item in (item for item in ITEMS if item.spec.mode == "single"):
        system, user = opening(item.build(0, 1))
        assert (system.role, user.role) == ("system", "user")
        form = delivery_form(item.spec)
        assert not form or user.content.count(form) == 1


@pytest.mark.parametrize("kind", ["integer", "decimal"])
def test_one_answer_is_asked_for_as_one_and_several_as_several(kind: str) -> None:
    item = next(item for item in ITEMS if item.spec.answers)

    def form(*keys: str) -> str:
        return delivery_form(item.spec.model_copy(update={"answers": AnswersSpec(keys=keys, format=kind)}))

    assert form("1").startswith("The answer is a ")
    assert "this line" in form("1")
    assert "number 1" not in form("1")
    assert form("1", "2").startswith("Each answer is a ")
    assert "these lines" in form("1", "2")


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.spec.id)
def test_every_task_but_the_long_one_fits_the_smoke_window(item: Item) -> None:
    smoke, instance = Profile("smoke"), item.build(0, 1)
    messages = messages_of(instance, smoke) if item.spec.mode == "agent" else opening(instance)
    fits = estimate(messages, smoke) + smoke.max_tokens(item.spec) < smoke.count("context")
    assert fits == (item.spec.id != "A09")


def test_the_second_run_of_one_prompt_has_no_prompt_speed() -> None:
    lines = (CASES / "57-prefix-cache-on-later-runs" / "runs.jsonl").read_text().splitlines()
    speeds = []
    for number, line in enumerate(map(json.loads, lines)):
        usage = {"prompt_tokens": line["prompt_eval_count"], "prompt_s": line["prompt_eval_duration"] / 1e9}
        speeds.append(speed({**usage, "prompt_shared": 1.0 if number else 0.0}, cold_load_s=1, cache_share=0.1))
    assert [one.prompt_speed for one in speeds] == ["cold", "cache_assisted", "cache_assisted"]
    assert [one.prompt_tokens_per_s for one in speeds] == [313.2, None, None]


def test_cached_tokens_that_a_server_reports_spoil_the_prompt_speed() -> None:
    usage = case("57-prefix-cache-on-later-runs", "usage_openai.json")["usage"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    call_usage = {"prompt_tokens": usage["prompt_tokens"], "cached_tokens": cached, "prompt_s": 0.4}
    assert speed(call_usage, cold_load_s=1, cache_share=0.1).prompt_speed == "cache_assisted"


def test_load_time_is_no_part_of_the_generation_speed() -> None:
    expected = case("59-load-time-in-the-measurement", "expected.json")
    for number, file in enumerate(("first.json", "second.json")):
        answer = case("59-load-time-in-the-measurement", file)
        found = speed(
            {
                "completion_tokens": answer["eval_count"],
                "generation_s": answer["eval_duration"] / 1e9,
                "load_s": answer["load_duration"] / 1e9,
            },
            cold_load_s=STANDARD.limit("cold_load_s"),
            cache_share=0.1,
        )
        assert found.generation_tokens_per_s == expected["gen_tok_s"][number]
        assert found.cold is expected["cold"][number]


def test_a_speed_that_drifts_marks_its_block() -> None:
    lines = (CASES / "62-thermal-throttling-and-swap" / "probe_tok_s.jsonl").read_text().splitlines()
    start, after_one, after_two = (json.loads(line)["tok_s"] for line in lines)
    drift = STANDARD.limit("speed_drift")
    assert speeds_stable([start, after_one], drift) is True
    assert speeds_stable([start, after_two], drift) is False
    assert speeds_stable([start, None], drift) is None


def test_seeds_are_registered_for_three_runs_and_derived_after_that() -> None:
    assert [STANDARD.seed(run) for run in (1, 2, 3)] == [11, 23, 37]
    assert len({STANDARD.seed(run) for run in range(1, 200)}) > 190


def test_an_item_can_lower_the_reply_cap_but_not_raise_it() -> None:
    spec = ITEMS[0].spec
    for cap, expected in ((8192, 8192), (100_000, STANDARD.count("max_tokens"))):
        assert STANDARD.max_tokens(spec.model_copy(update={"caps": type(spec.caps)(max_tokens=cap)})) == expected


@pytest.mark.parametrize("profile", PROFILES)
def test_no_cap_of_smoke_is_above_that_of_standard(profile: str) -> None:
    for limit in harness().limits.values():
        assert limit.under(profile) <= limit.value
