"""Replies are taken apart the same way for every model, and nothing in them raises."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmbench.harness.reply import Form, parse_reply, render_reply, split_thinking
from pytest_llmbench.spec import Delivery

CASES = Path(__file__).resolve().parent.parent / "fieldcases"
CODE = "def slugify(text):\n    return '-'.join(text.lower().split())\n"
SLUGIFY = "slugify.py"


def folder(number: str) -> Path:
    return next(CASES.glob(f"{number}-*"))


def stored(number: str, name: str = "reply.txt") -> str:
    return (folder(number) / name).read_bytes().decode("utf-8")


def expected(number: str) -> Any:
    return json.loads(stored(number, "expected.json"))


def parse(
    content: str,
    files: Sequence[str] = (SLUGIFY,),
    answers: Sequence[str] = (),
    thinking: str = "",
    form: Form = "integer",
    exhausted: bool = False,
) -> Delivery:
    return parse_reply(content, thinking, files=files, answers=answers, form=form, exhausted=exhausted)


def answered(content: str, *keys: str) -> dict[str, str]:
    delivery = parse(content, files=(), answers=keys or ("1",))
    return {key: answer.raw for key, answer in delivery.answers.items()}


# --- field cases -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", ["01", "03", "04", "06", "07", "09", "10", "12", "16", "19"])
def test_fieldcase_files_are_found_exactly(number: str) -> None:
    wanted = expected(number)
    delivery = parse(stored(number), files=list(wanted["files"]))
    assert delivery.files == wanted["files"]
    assert set(wanted.get("flags", [])) <= set(delivery.flags)
    assert delivery.no_answer is None


def test_fieldcase_01_both_versions_are_kept_and_counted() -> None:
    delivery = parse(stored("01"))
    assert len(delivery.versions[SLUGIFY]) == 2
    assert delivery.versions[SLUGIFY][-1] == delivery.files[SLUGIFY]
    assert f"duplicates:{SLUGIFY}={expected('01')['duplicates'][SLUGIFY]}" in delivery.flags


def test_fieldcase_13_an_elided_part_is_flagged_and_nothing_is_repaired() -> None:
    delivery = parse(stored("13"), files=["inventory.py"])
    assert "elision_suspected:inventory.py:5" in delivery.flags
    assert "# ... (rest of the methods stay the same) ..." in delivery.files["inventory.py"]


def test_fieldcase_13_a_legal_ellipsis_is_not_flagged() -> None:
    delivery = parse(f"sized.py\n```python\n{stored('13', expected('13')['no_flag_for'])}```\n", files=["sized.py"])
    assert delivery.flags == ()


def test_fieldcase_15_lookalikes_are_named_and_kept() -> None:
    delivery = parse(stored("15"), files=["greet.py"])
    assert [flag for flag in delivery.flags if flag.startswith("lookalike")] == [
        f"lookalike:{char}" for char in expected("15")["lookalikes"]
    ]
    with pytest.raises(SyntaxError):
        ast.parse(delivery.files["greet.py"])


def test_fieldcase_18_reasoning_that_never_ends_is_no_answer() -> None:
    delivery = parse(stored("18"), files=(), answers=["1"], exhausted=True)
    assert (delivery.no_answer, delivery.answers, delivery.text) == (expected("18")["reason"], {}, "")
    assert "budget_exhausted" in delivery.flags


def test_fieldcase_25_the_repeated_answer_form_is_no_answer() -> None:
    assert answered(stored("25")) == {"1": expected("25")["answer"]}


def test_fieldcase_26_half_a_surrogate_pair_passes_through() -> None:
    content = json.loads(stored("26", "response.json"))["message"]["content"]
    assert answered(content) == {"1": expected("26")["answer"]}
    assert "\ud835" in parse(content, files=(), answers=["1"]).text
    assert parse("notes.txt\n```\n\ud835\n```\n", files=["notes.txt"]).files == {"notes.txt": "\ud835\n"}


def test_fieldcase_44_a_budget_spent_on_thinking_is_its_own_reason() -> None:
    message = json.loads(stored("44", "response.json"))["message"]
    delivery = parse(message["content"], answers=["1"], thinking=message["thinking"], exhausted=True)
    assert delivery.no_answer == expected("44")["reason"]


@pytest.mark.parametrize("name", sorted(expected("46")))
def test_fieldcase_46_answers_come_from_the_content_only(name: str) -> None:
    body = json.loads(stored("46", name))
    message = body["message"] if "message" in body else body["choices"][0]["message"]
    thinking = next((message[key] for key in ("thinking", "reasoning", "reasoning_content") if message.get(key)), "")
    content = message["content"] or ""
    delivery = parse(content, files=(), answers=["1"], thinking=thinking)
    wanted = expected("46")[name]
    if isinstance(wanted, list):
        assert delivery.answers["1"].raw == wanted[0]
        assert wanted[1] == (thinking or split_thinking(content)[0])
    elif wanted == "no_answer":
        assert delivery.no_answer == "stopped_in_thinking"
    else:
        assert delivery.no_answer == wanted


# --- reasoning -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("opening", "closing"),
    [(f"<{tag}>", f"</{tag}>") for tag in ("think", "thinking", "thought", "reasoning", "seed:think")]
    + [("[THINK]", "[/THINK]")],
)
def test_a_block_at_the_start_is_reasoning(opening: str, closing: str) -> None:
    assert split_thinking(f"\n {opening}a{closing}\nb") == ("a", "b", None)
    assert split_thinking(f"{opening}a") == ("a", "", "thinking_not_closed")
    assert split_thinking(f"a\n{closing}\nb") == ("a", "b", None)


@pytest.mark.parametrize(
    "tag",
    ["`</think>`", "'</think>'", '"</think>"', "\u201c</think>\u201d", "r'<think>.*?</think>'"],
)
def test_a_quoted_closing_tag_closes_nothing(tag: str) -> None:
    assert split_thinking(f"<think>I strip {tag} first.</think>done")[1:] == ("done", None)


def test_a_closing_tag_directly_before_a_fence_closes() -> None:
    assert split_thinking("<think>a</think>```python\nx\n```")[1] == "```python\nx\n```"


def test_a_tag_later_in_the_reply_is_content() -> None:
    for text in ("Use <think> here.", f"x\n```\n<think>\n</think>\n```\n{CODE}", "Like\n<think>\na\n</think>\nb"):
        assert split_thinking(text) == ("", text, None)


def test_a_draft_fence_left_open_does_not_hide_a_lone_closing_tag() -> None:
    content = f"Maybe:\n```python\ndraft\n</think>\n\n```python\n{CODE}```\n"
    assert parse(content).files == {SLUGIFY: CODE}


def test_harmony_channels_are_split() -> None:
    head = "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>"
    assert split_thinking(f"{head}ANSWER: 14<|return|>") == ("a", "ANSWER: 14", None)
    assert split_thinking("<|channel|>analysis<|message|>a") == ("a", "", "thinking_not_closed")
    assert split_thinking("<|channel|>final<|message|>b") == ("", "b", None)


def test_several_blocks_at_the_start_are_all_reasoning() -> None:
    assert split_thinking("<think>a</think>\n<think>b</think>\nc") == ("a\n\nb", "c", None)


# --- answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "ANSWER 1: 14",
        "Answer 1: 14",
        "answer #1 = 14",
        "ANSWER (1): 14",
        "**ANSWER 1: 14**",
        "**ANSWER 1:** 14",
        "- ANSWER 1: `14`",
        "> ANSWER 1: 14",
        "### ANSWER 1: 14",
        "`ANSWER 1: 14`",
        "2. ANSWER 1: 14",
        "ANSWER: 14",
        "ANSWER \uff1a 14",
        "So I get ANSWER 1: 14",
    ],
)
def test_an_answer_line_is_read(line: str) -> None:
    assert answered(f"Text.\n{line}\n") == {"1": "14"}


def test_the_last_usable_line_wins() -> None:
    assert answered("ANSWER 1: 2\nANSWER 1: 14\nANSWER 1: <number>\nANSWER 1: ...\nANSWER 1:\nANSWER 1: integer") == {
        "1": "14"
    }
    assert answered("ANSWER 1: 14\nANSWER 1: see above") == {"1": "14"}
    assert answered("ANSWER 1: 14\nANSWER 1: 14 or 15") == {"1": "14 or 15"}


def test_several_keys_need_their_keys() -> None:
    assert answered("ANSWER A: 1\nANSWER b: 2\nANSWER: 3\nANSWER c: 4", "a", "b") == {"a": "1", "b": "2"}
    assert answered("ANSWER a: 1, ANSWER b: 2", "a", "b") == {"a": "1", "b": "2"}


def test_an_own_line_comes_before_a_mention_in_a_sentence() -> None:
    assert answered("ANSWER 1: 14\nI first had ANSWER 1: 2 in mind.") == {"1": "14"}


def test_answers_outside_of_code_come_first() -> None:
    delivery = parse("ANSWER 1: 14\n```\nANSWER 1: 2\n```\n", files=(), answers=["1"])
    assert (delivery.answers["1"].raw, delivery.flags) == ("14", ())


def test_an_answer_only_in_code_counts_and_is_flagged() -> None:
    delivery = parse("```\nANSWER 1: 2\n```\n", files=(), answers=["1"])
    assert (delivery.answers["1"].raw, delivery.flags) == ("2", ("answer_in_code",))


def test_other_words_are_no_answers() -> None:
    assert answered("my_answer: 3\nanswers: 4\nThe answer: 5\nANSWERED 1: 6") == {}


# --- fences ----------------------------------------------------------------------------------------------------------


def test_content_that_is_not_indented_in_a_list_is_kept_whole() -> None:
    content = f"1. Create `{SLUGIFY}`:\n\n   ```python\n{CODE}   ```\n\n2. Run\n\n   ```bash\npytest\n   ```\n"
    assert parse(content).files == {SLUGIFY: CODE}


def test_a_fence_on_the_line_of_its_bullet_loses_its_indent() -> None:
    assert parse("- ```python\n  # slugify.py\n  x = 1\n  ```\n").files == {SLUGIFY: "# slugify.py\nx = 1\n"}


def test_a_deeply_indented_fence_is_found() -> None:
    assert parse("Text:\n\n      ```python\n      x = 1\n      ```\n").files == {SLUGIFY: "x = 1\n"}


def test_a_fence_in_a_quote_is_found() -> None:
    assert parse("> slugify.py\n> ```python\n> x = 1\n>   y\n> ```\n").files == {SLUGIFY: "x = 1\n  y\n"}


@pytest.mark.parametrize("fence", ["```", "````", "~~~", "~~~~~~"])
def test_every_fence_works(fence: str) -> None:
    assert parse(f"slugify.py\n{fence}python linenos\n{CODE}{fence}\n").files == {SLUGIFY: CODE}


def test_a_shorter_fence_is_content() -> None:
    inner = "# A\n\n```\nx\n```\n"
    assert parse(f"README.md\n````\n{inner}````\n", files=["README.md"]).files == {"README.md": inner}


def test_nested_blocks_and_adjacent_files_pass_together() -> None:
    readme = "# A\n\n```bash\nx\n```\n\n```python\ny\n```\n"
    content = f"README.md\n```markdown\n{readme}```\n\nslugify.py\n```python\n{CODE}```\n"
    assert parse(content, files=["README.md", SLUGIFY]).files == {"README.md": readme, SLUGIFY: CODE}


def test_a_readme_whose_inner_block_is_not_closed_does_not_swallow_the_next_file() -> None:
    content = f"README.md\n```markdown\n# A\n```bash\nx\n```\n\nslugify.py\n```python\n{CODE}```\n"
    assert parse(content, files=["README.md", SLUGIFY]).files[SLUGIFY] == CODE


def test_a_truncated_readme_goes_to_the_end() -> None:
    delivery = parse("README.md\n```markdown\n# A\n```bash\nx\n```\nmore", files=["README.md"])
    assert delivery.files == {"README.md": "# A\n```bash\nx\n```\nmore\n"}
    assert "unclosed_fence" in delivery.flags


def test_bare_code_before_a_lone_fence_may_start_with_its_language() -> None:
    assert parse(f"python\n{CODE}```").files == {SLUGIFY: CODE}


def test_crlf_becomes_lf_and_is_flagged() -> None:
    delivery = parse("slugify.py\r\n```\r\nx\r\n```\r\n")
    assert (delivery.files, "crlf" in delivery.flags) == ({SLUGIFY: "x\n"}, True)


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "info",
    [
        "python slugify.py",
        "python:slugify.py",
        'python title="slugify.py"',
        "slugify.py",
        "python filename=./slugify.py",
    ],
)
def test_the_info_string_may_name_the_file(info: str) -> None:
    delivery = parse(f"```{info}\n{CODE}```\n", files=[SLUGIFY, "b.py"])
    assert (delivery.files, delivery.flags) == ({SLUGIFY: CODE}, ())


@pytest.mark.parametrize(
    "line",
    [
        "slugify.py",
        "./slugify.py",
        "**slugify.py**",
        "**`slugify.py`**:",
        "`slugify.py`:",
        "### File: slugify.py",
        "## `slugify.py`",
        "1. Create `slugify.py`:",
        "File: slugify.py\n\n",
        "Here is the module slugify.py.",
    ],
)
def test_the_line_above_may_name_the_file(line: str) -> None:
    delivery = parse(f"{line}\n```python\n{CODE}```\n", files=[SLUGIFY, "b.py"])
    assert (delivery.files, delivery.flags) == ({SLUGIFY: CODE}, ())


@pytest.mark.parametrize("line", ["# slugify.py", "// slugify.py", "<!-- slugify.py -->", "# slugify.py - the module"])
def test_a_first_comment_may_name_the_file_and_stays(line: str) -> None:
    assert parse(f"```\n{line}\n{CODE}```\n", files=[SLUGIFY, "b.py"]).files == {SLUGIFY: f"{line}\n{CODE}"}


@pytest.mark.parametrize("name", ["helper.py", "../slugify.py", "/etc/slugify.py", "a\\slugify.py", "src/slugify.py"])
def test_a_name_nobody_asked_for_is_recorded_and_not_used(name: str) -> None:
    for content in (f"{name}\n```python\nx\n```\n", f"```python {name}\nx\n```\n", f"```python\n# {name}\nx\n```\n"):
        delivery = parse(content)
        assert (delivery.files, delivery.unknown_files, delivery.no_answer) == ({}, (name,), "nothing_found")


def test_a_name_in_another_case_is_unknown_and_flagged() -> None:
    delivery = parse("Slugify.py\n```python\nx\n```\n")
    assert (delivery.files, delivery.unknown_files) == ({}, ("Slugify.py",))
    assert delivery.flags == ("case_mismatch:Slugify.py",)


def test_part_of_a_longer_name_is_not_the_name() -> None:
    assert parse("See my_slugify.py for more:\n```python\nx\n```\n", files=[SLUGIFY, "b.py"]).files == {}


def test_the_last_fitting_block_without_a_name_is_taken() -> None:
    delivery = parse(f"```python\nold\n```\nthen\n```python\n{CODE}```\nRun:\n```bash\npython slugify.py\n```\n")
    assert delivery.files == {SLUGIFY: CODE}
    assert delivery.flags == ("name_inferred", "several_candidates")


def test_a_command_or_output_that_mentions_the_file_is_not_the_file() -> None:
    run = "Run slugify.py:\n```bash\npython slugify.py\n```\nslugify.py prints:\n```\na\n```\n"
    assert parse(f"slugify.py\n```python\n{CODE}```\n{run}").versions == {SLUGIFY: (CODE,)}


def test_blocks_without_names_are_not_bound_to_one_of_several_files() -> None:
    assert parse(f"```python\n{CODE}```\n", files=[SLUGIFY, "b.py"]).no_answer == "nothing_found"


def test_an_unfenced_text_is_taken_for_prose_files_only() -> None:
    delivery = parse("A letter.\n\nBye.", files=["letter.txt"])
    assert (delivery.files, delivery.repairs) == (
        {"letter.txt": "A letter.\n\nBye.\n"},
        ("unfenced_reply_taken_as_file",),
    )
    assert parse(CODE).no_answer == "nothing_found"


@pytest.mark.parametrize(
    "line",
    ["# ... rest unchanged ...", "// existing code here", "[rest of code]", "    # ...", "<!-- rest of the file -->"],
)
def test_elisions_are_suspected(line: str) -> None:
    assert f"elision_suspected:{SLUGIFY}:2" in parse(f"slugify.py\n```\nx\n{line}\n```\n").flags


@pytest.mark.parametrize("line", ["    ...", "# keep the rest of the words sorted", "x = [...]", "# e.g. a...z", "[1]"])
def test_legal_lines_are_not_suspected(line: str) -> None:
    assert parse(f"slugify.py\n```\nx\n{line}\n```\n").flags == ()


# --- reasons ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "thinking", "exhausted", "reason"),
    [
        ("", "", False, "empty_reply"),
        (" \n", "", True, "empty_reply"),
        ("I cannot.", "", False, "nothing_found"),
        ("", "Hm", False, "stopped_in_thinking"),
        ("", "Hm", True, "budget_exhausted_in_thinking"),
        ("<think>Hm</think>", "", False, "stopped_in_thinking"),
        ("<think>Hm", "", True, "thinking_not_closed"),
        ("", "ANSWER 1: 4", False, "answer_in_reasoning_channel"),
        ("", f"slugify.py\n```\n{CODE}```", False, "answer_in_reasoning_channel"),
        ("", "I must write\nANSWER 1: <number>", False, "stopped_in_thinking"),
        ("ANSWER 1: 4", "Hm", True, None),
    ],
)
def test_the_reason_for_no_answer(content: str, thinking: str, exhausted: bool, reason: str | None) -> None:
    assert parse(content, answers=["1"], thinking=thinking, exhausted=exhausted).no_answer == reason


def test_where_nothing_is_asked_for_a_text_is_enough() -> None:
    assert parse("Hello", files=()).no_answer is None


# --- anything --------------------------------------------------------------------------------------------------------

PIECES = st.sampled_from(
    ["```", "````", "~~~", "python", "md", "\n", "\n\n", " ", "   ", "\t", "- ", "1. ", "> ", "slugify.py", "README.md",
     "ANSWER 1: ", "ANSWER", "14", "<think>", "</think>", "[THINK]", "<|channel|>final<|message|>", "<|end|>", "`",
     "# ", "...", "\r\n", "\r", "\x00", "\ud835", "\u00a0", "x", "<|channel|>analysis<|message|>"]
)  # fmt: skip
REPLIES = st.one_of(st.text(st.characters(codec=None)), st.lists(PIECES, max_size=40).map("".join))


@given(REPLIES, REPLIES, st.booleans())
@settings(max_examples=400, deadline=None)
def test_any_text_is_parsed_without_exception_and_always_alike(content: str, thinking: str, exhausted: bool) -> None:
    files, answers = [SLUGIFY, "README.md"], ["1", "b"]
    first = parse(content, files, answers, thinking, exhausted=exhausted)
    assert first == parse(content, files, answers, thinking, exhausted=exhausted)
    assert set(first.files) <= set(files)
    assert (first.no_answer is None) == bool(first.files or first.answers)
    assert all(first.versions[name][-1] == text for name, text in first.files.items())
    assert parse(content, files[:1], answers[:1]) == parse(content, files[:1], answers[:1])


CONTENTS = st.one_of(
    st.text(st.characters(codec=None, exclude_characters="\r")), st.lists(PIECES, max_size=30).map("".join)
).map(lambda text: text.replace("\r", "") + "\n")
NAMES = ["slugify.py", "README.md", "notes.txt", "data/a b.json", "Makefile"]


@given(
    st.dictionaries(st.sampled_from(NAMES), CONTENTS, min_size=1), st.dictionaries(st.sampled_from("ab"), st.integers())
)
@settings(max_examples=400, deadline=None)
def test_the_documented_form_comes_back_byte_for_byte(files: dict[str, str], answers: dict[str, int]) -> None:
    answers = {key: number % 10**12 for key, number in answers.items()}
    delivery = parse(render_reply(answers, files), NAMES, ["a", "b"])
    assert delivery.files == files
    assert {key: answer.value for key, answer in delivery.answers.items() if key in answers} == answers
    assert not {"unclosed_fence", "name_inferred", "crlf"} & set(delivery.flags)


def test_a_missing_final_line_end_is_added() -> None:
    assert parse(render_reply({}, {SLUGIFY: "x"})).files == {SLUGIFY: "x\n"}
    assert parse(render_reply({}, {SLUGIFY: ""})).files == {SLUGIFY: ""}


def test_hostile_replies_are_parsed() -> None:
    good = f"slugify.py\n````\n{CODE}````\nANSWER 1: 14\n"
    for hostile in ("x" * 1_000_000, "> " * 100_000, "- " * 100_000, "text\n" * 100_000, "`a` " * 100_000):
        delivery = parse(f"{hostile}\n\n{good}", answers=["1"])
        assert delivery.files == {SLUGIFY: CODE}
        assert delivery.answers["1"].value == 14
    fences = parse("```\n" * 100_000 + "\nANSWER 1: 14\n", answers=["1"])
    assert fences.answers["1"].value == 14


def test_a_string_at_column_zero_in_indented_code_keeps_the_rest_dedented() -> None:
    content = '1. Create `slugify.py`:\n\n   ```python\n   s = """\ntext\n   """\n   if s:\n       t = 1\n   ```\n'
    assert parse(content).files == {SLUGIFY: 's = """\ntext\n"""\nif s:\n    t = 1\n'}
