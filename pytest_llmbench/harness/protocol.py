"""Tool calls over text: the form of a call, how a reply is read, how its result is written.

A call is a line ``TOOL name``, one line ``key: value`` per argument, and a line ``END TOOL``; the last argument may be
a block of verbatim lines. Nothing in it is escaped. A text that quotes whole calls can stand in a block: calls nest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from string import Template
from typing import Final

from pytest_llmbench.harness.frozen import ToolText, harness
from pytest_llmbench.harness.reply import split_thinking

MAX_CALL_LINE: Final = 200
"""Longer lines are not looked at as calls that went wrong."""
MAX_QUOTED_CALLS: Final = 16
"""So many malformed calls in code blocks are looked at; the rest of the reply is then taken as without a call."""
RESULT_FENCE: Final = 4
"""Shortest fence around a result."""

IGNORED: Final = "ignored_argument"
"""The repair of a call that gives something to a tool that takes nothing."""

TOOLS: Final[Mapping[str, ToolText]] = harness().tools
TEXTS: Final = harness().texts
REFUSED: Final = TEXTS["agent_refused"].strip().partition("$")[0]

_MARKER: Final = "TOOL"
_WORD: Final = re.compile(r"[A-Za-z_][\w.-]*")
_FENCE: Final = re.compile(r"(`{3,}|~{3,})[ \t]*([^`\s]*)[^`\n]*")
_MARKDOWN: Final = (".md", ".markdown")
_MARKDOWN_LANGUAGES: Final = frozenset(("md", "markdown"))
_RESULT_LINE: Final = re.compile(
    r"(?:[>*_#`\s-]*)(?:RESULTS?\b(?:[ \t]+[0-9]|[ \t]*:|[ \t]*$)|(?:TOOL|CALL)[ _]RESULTS?\b|OBSERVATION[ \t]*:|"
    r"</?tool_(?:response|result)|OUTPUT[ \t]*:)",
    re.IGNORECASE,
)
_NEAR: Final = re.compile(r"[ \t>*_`#-]*TOOL\b[ \t:=*_`\"'<-]*(\w+)")
_NAMES: Final = "|".join(TOOLS)
_FOREIGN: Final = re.compile(
    r"</?tool_call>|<function[ =]|<invoke\b|<\|?(?:tool_call|python_tag)|\[TOOL_CALLS\]|"
    rf"[\"'](?:name|action)[\"']\s{{0,8}}:\s{{0,8}}[\"'](?:{_NAMES})[\"']|"
    r"[\"'](?:tool|tool_name|tool_calls?|function|function_call)[\"']\s{0,8}:|"
    rf"^[ \t`>*-]{{0,8}}(?:{_NAMES})\s?\(|<(?:{_NAMES})\b",
    re.MULTILINE,
)
_FOREIGN_NAME: Final = re.compile(rf"\b({_NAMES})\b")


@dataclass(frozen=True)
class Call:
    """One tool call."""

    tool: str
    arguments: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """What a call gave, as the model got it."""

    text: str
    failed: bool = False
    notes: str = ""
    """What stands below the result: notices, costs, turns left."""


@dataclass(frozen=True)
class Problem:
    """Why a reply holds no call that can be run."""

    kind: str
    """Such as ``no_call``, ``unknown_tool`` or ``truncated_call``."""
    text: str
    """In words for the model."""
    tool: str | None = None
    """The tool that was meant, where that can be told."""
    given: Mapping[str, str] = field(default_factory=dict)
    """Its arguments as far as they are good."""


@dataclass(frozen=True)
class Reading:
    """What a reply holds: a call or a problem."""

    call: Call | None
    problem: Problem | None
    kept: str
    """What stays in the history: the answer up to the end of the call."""
    cut_chars: int = 0
    extra_calls: int = 0
    invented_results: int = 0
    repairs: tuple[str, ...] = ()


# --- writing ---------------------------------------------------------------------------------------------------------


def render_call(call: Call) -> str:
    """A call in the form."""
    tool = TOOLS.get(call.tool, ToolText(description=""))
    lines = [f"TOOL {call.tool}"]
    lines += [f"{key}: {value}" for key, value in call.arguments.items() if key != tool.block]
    if tool.block is not None and tool.block in call.arguments:
        text = call.arguments[tool.block]
        lines += [f"{tool.block}:", *(text.removesuffix("\n").split("\n") if text else [])]
    return "\n".join([*lines, "END TOOL"])


def form_of(tool: str, given: Mapping[str, str]) -> str:
    """The form of a call to ``tool``, with the single-line arguments of ``given`` filled in."""
    text = TOOLS[tool]
    short = {key: value for key, value in given.items() if value and len(value) <= MAX_CALL_LINE and key != text.block}
    values = {
        key: short.get(key, f"<{about}>")
        for key, about in text.arguments.items()
        if key in given or key not in text.optional
    }
    return render_call(Call(tool, values))


def protocol_text(tools: Sequence[str], turns: int) -> str:
    """What the model is told about tools and their form; ``tools`` are those of the item, in its order."""
    return filled("agent_protocol", turns=turns, tools="\n".join(_described(tools)))


def _described(tools: Sequence[str]) -> Iterator[str]:
    for name in tools:
        tool = TOOLS[name]
        yield f"{name}: {tool.description}"
        if not tool.arguments:
            yield f"  ({TEXTS['agent_no_arguments']})"
        for key, about in tool.arguments.items():
            yield f"  {key}: {about}{' (may be left out)' if key in tool.optional else ''}"


def filled(text: str, **values: object) -> str:
    """A frozen text with its places filled in."""
    return Template(TEXTS[text]).substitute(values).strip()


def render_result(number: int, tool: str, result: Result) -> str:
    """The message that brings the result of call ``number``. No result can forge its end: the fence is longer than any
    run of backticks in it."""
    runs = re.findall(r"`+", result.text)
    fence = "`" * max(RESULT_FENCE, 1 + max(map(len, runs), default=0))
    body = result.text if not result.text or result.text.endswith("\n") else result.text + "\n"
    head = f"RESULT {number} {tool}{' FAILED' if result.failed else ''}"
    return f"{head}\n{fence}\n{body}{fence}\n{result.notes}".strip("\n")


def render_problem(problem: Problem, left: int) -> str:
    """The message that says why nothing was run and how it is done."""
    form = f"\n{TEXTS['agent_form']}\n\n{form_of(problem.tool, problem.given)}" if problem.tool else ""
    return filled("agent_refused", problem=problem.text, form=form, left=left)


def read_result(message: str) -> Result:
    """A message of ``render_result`` or ``render_problem`` taken apart; any other is a failed result in whole."""
    head, _, rest = message.partition("\n")
    fence, _, body = rest.partition("\n")
    if not head.startswith("RESULT ") or not fence.startswith("`" * RESULT_FENCE):
        return Result(message, failed=True)
    text, _, notes = f"\n{body}\n".partition(f"\n{fence}\n")
    return Result(f"{text[1:]}\n" if text else "", head.endswith(" FAILED"), notes.strip("\n"))


# --- reading ---------------------------------------------------------------------------------------------------------


def read_reply(
    content: str, thinking: str, tools: Sequence[str], *, cut_at: int | None = None, native: bool = False
) -> Reading:
    """Read a reply; no text raises.

    Args:
        content: the reply as it came, tagged thinking included.
        thinking: the text of the server's own reasoning field.
        tools: the tools of the item.
        cut_at: so many tokens the reply had when it was cut; None where it ended by itself.
        native: the server moved a call of the model's own form out of the reply.
    """
    tagged, answer, unclosed = split_thinking(content)
    lines = answer.replace("\r\n", "\n").split("\n")
    repairs = ("crlf",) if "\r\n" in answer else ()
    found = _first_call(lines, tools)
    if found is not None and found.call is not None:
        return _reading(lines, found, repairs)
    problem = found.problem if found is not None else None
    if found is None or not found.closed:
        problem = _cut(problem, cut_at, answer) or problem
    if problem is None:
        problem = _no_call(answer, thinking or tagged, unclosed, native, tools)
    return _reading(lines, _Found(None, problem, _kept_lines(lines, found)), repairs)


@dataclass(frozen=True)
class _Found:
    """A call, or one that went wrong."""

    call: Call | None
    problem: Problem | None
    end: int
    """The line behind it."""
    closed: bool = False
    """Whether its END TOOL is there."""
    repairs: tuple[str, ...] = ()
    start: int = 0


def _reading(lines: Sequence[str], found: _Found, repairs: tuple[str, ...]) -> Reading:
    rest = lines[found.end :]
    return Reading(
        found.call,
        found.problem,
        kept="\n".join(lines[: found.end]).strip("\n"),
        cut_chars=len("\n".join(rest).strip()),
        extra_calls=sum(1 for line in rest if _header(line) is not None),
        invented_results=sum(1 for line in rest if _is_result(line)),
        repairs=(*repairs, *found.repairs),
    )


def _is_result(line: str) -> bool:
    return len(line) <= MAX_CALL_LINE and _RESULT_LINE.match(line) is not None


def _kept_lines(lines: Sequence[str], found: _Found | None) -> int:
    """How many lines stay in the history where nothing was run: none from the first invented result on."""
    if found is not None and found.closed:
        return found.end
    start, end = (found.start, found.end) if found is not None else (0, len(lines))
    return next((number for number in range(start, end) if _is_result(lines[number])), end)


def _cut(problem: Problem | None, cut_at: int | None, answer: str) -> Problem | None:
    if cut_at is None:
        return None
    text = filled("agent_cut", tokens=cut_at)
    if problem is not None:
        return Problem("truncated_call", text, problem.tool, problem.given)
    return Problem("truncated_reply", text) if answer.strip() else None


def _no_call(answer: str, thinking: str, unclosed: str | None, native: bool, tools: Sequence[str]) -> Problem:
    foreign = _FOREIGN.search(answer)
    if native or foreign is not None:
        name = _FOREIGN_NAME.search(answer, foreign.start() if foreign else 0)
        meant = name[1] if name and name[1] in tools else tools[0]
        return Problem("foreign_call_format", "this is another form of tool call, which is not known here.", meant)
    for line in answer.split("\n"):
        near = _NEAR.match(line) if len(line) <= MAX_CALL_LINE else None
        if near is not None and near[1] in tools:
            text = f"a call begins with a line that holds nothing but TOOL {near[1]}, at the left edge."
            return Problem("malformed_marker", text, near[1])
    kind = "no_call" if answer.strip() else "stopped_in_thinking" if thinking.strip() or unclosed else "empty_reply"
    return Problem(kind, TEXTS["agent_no_call"].strip(), tools[0])


def _header(line: str) -> str | None:
    """Name in a line that begins a call; None for every other line."""
    if line[: len(_MARKER)].upper() != _MARKER or len(line) > MAX_CALL_LINE:
        return None
    words = line.split()
    if len(words) != 2 or words[0].upper() != _MARKER or _WORD.fullmatch(words[1]) is None:
        return None
    return words[1] if words[0] == _MARKER or words[1] in TOOLS else None


def _ends(line: str) -> bool:
    return line[:1] in ("E", "e") and len(line) <= MAX_CALL_LINE and line.upper().split() == ["END", _MARKER]


def _first_call(lines: Sequence[str], tools: Sequence[str]) -> _Found | None:
    """The first complete call. Outside of code blocks a call that went wrong ends the search; one that is quoted in a
    block is a problem only where nothing better follows."""
    spare: _Found | None = None
    number, quoted = 0, 0
    endless: dict[str, int] = {}
    while number < len(lines):
        if _header(lines[number]) is not None:
            return _parse(lines, number, tools)
        opener = _FENCE.fullmatch(lines[number]) if len(lines[number]) <= MAX_CALL_LINE else None
        if opener is None:
            number += 1
            continue
        fence = opener[1]
        closer = None if len(fence) >= endless.get(fence[0], len(fence) + 1) else _closer(lines, number, fence)
        if closer is None:
            endless[fence[0]] = len(fence)
        if closer is None and not _opens_call(lines, number):
            number += 1
            continue
        if _opens_call(lines, number) and quoted < MAX_QUOTED_CALLS:
            found = _parse(lines, _next_line(lines, number), tools)
            if found.call is not None:
                return _with_fence(lines, found, fence)
            spare, quoted = spare or found, quoted + 1
        elif spare is None:
            spare = _quoted(lines, number, closer if closer is not None else len(lines), tools)
        number = closer + 1 if closer is not None else len(lines)
    return spare


def _next_line(lines: Sequence[str], number: int) -> int:
    number += 1
    while number < len(lines) and not lines[number].strip():
        number += 1
    return number


def _opens_call(lines: Sequence[str], number: int) -> bool:
    following = _next_line(lines, number)
    return following < len(lines) and _header(lines[following]) is not None


def _closer(lines: Sequence[str], number: int, fence: str) -> int | None:
    for at in range(number + 1, len(lines)):
        if _closes(lines[at], fence):
            return at
    return None


def _closes(line: str, fence: str) -> bool:
    bare = line.rstrip()
    return len(bare) >= len(fence) and set(bare) == {fence[0]}


def _with_fence(lines: Sequence[str], found: _Found, fence: str) -> _Found:
    """A call that a code block holds: the block's end is part of it."""
    end = found.end
    closed = end < len(lines) and _closes(lines[end], fence)
    return _Found(found.call, None, end + closed, True, (*found.repairs, "fence_around_call"))


def _quoted(lines: Sequence[str], start: int, end: int, tools: Sequence[str]) -> _Found | None:
    for line in lines[start + 1 : end]:
        name = _header(line)
        if name in tools and name is not None:
            text = "the call stands inside of a code block behind other text, so it was taken as a quotation."
            return _Found(None, Problem("quoted_call", text, name), len(lines))
    return None


def _parse(lines: Sequence[str], start: int, tools: Sequence[str]) -> _Found:
    """Read the call that begins at line ``start``."""
    name = _header(lines[start]) or ""
    tool = TOOLS[name] if name in tools else ToolText(description="")
    given: dict[str, str] = {}
    repairs: tuple[str, ...] = ()
    problem = None if name in tools else Problem("unknown_tool", f"there is no tool {name}. {_tools(tools)}")
    number = start + 1
    while number < len(lines) and not _ends(lines[number]):
        line = lines[number].rstrip()
        if _header(line) is not None:
            return _unclosed(name, given, tools, f" before the line {line}", (start, number))
        key, colon, value = line.partition(":")
        if colon and not value.strip() and key == tool.block and key not in given:
            end = _block_end(lines, number + 1)
            if end is None:
                return _unclosed(name, given, tools, f" behind {key}", (start, len(lines)))
            given[key], repairs = _unfenced(lines[number + 1 : end], given.get("path", ""))
            number = end
            if _ends_twice(lines, end + 1):
                text = (
                    "two lines END TOOL stand behind one line TOOL, so it is not clear where the text ends. Write "
                    "END TOOL once, and nothing behind it. A line of the text itself cannot be END TOOL."
                )
                problem = problem or Problem("ambiguous_end", text, name, given)
            break
        if colon and name in tools and not tool.arguments and _WORD.fullmatch(key) is not None:
            repairs = (IGNORED,)
        elif line:
            problem = problem or _argument(name, tool, key if colon else None, value.strip(), given, line)
        number += 1
    if number >= len(lines):
        unclosed = _unclosed(name, given, tools, "", (start, number))
        return unclosed if problem is None else replace(unclosed, problem=problem)
    problem = problem or _missing(name, tool, given)
    if problem is not None:
        return _Found(None, problem, number + 1, closed=True)
    return _Found(Call(name, given), None, number + 1, closed=True, repairs=repairs)


def _argument(
    name: str, tool: ToolText, key: str | None, value: str, given: dict[str, str], line: str
) -> Problem | None:
    """Take one argument line into ``given``, or say what is wrong with it."""
    if key is None or (key not in tool.arguments and _WORD.fullmatch(key) is None):
        text = f"the line {line[:MAX_CALL_LINE]!r} is no argument of {name}."
        if tool.block in given:
            text = f"{text} An argument of several lines begins with {tool.block}: alone on its line."
        return Problem("stray_line", text, name, dict(given))
    if key not in tool.arguments:
        takes = ", ".join(tool.arguments) or "no arguments"
        return Problem(
            "unknown_argument",
            f"{name} has no argument {key}; it takes {takes}. Leave that line out.",
            name,
            dict(given),
        )
    if key in given:
        return Problem("duplicate_argument", f"the argument {key} stands there twice.", name, dict(given))
    given[key] = f"{value}\n" if key == tool.block else value
    return None


def _missing(name: str, tool: ToolText, given: Mapping[str, str]) -> Problem | None:
    missing = [key for key in tool.arguments if key not in given and key not in tool.optional]
    if not missing:
        return None
    text = f"{name} needs the argument {' and '.join(missing)}."
    if tool.block in given:
        text = f"{text} It has to stand before {tool.block}."
    return Problem("missing_argument", text, name, given)


def _unclosed(name: str, given: Mapping[str, str], tools: Sequence[str], where: str, lines: tuple[int, int]) -> _Found:
    text = f"the line END TOOL is missing{where}."
    problem = Problem("unclosed_call", text, name if name in tools else None, given)
    return _Found(None, problem, lines[1], start=lines[0])


def _tools(tools: Sequence[str]) -> str:
    return f"The tools are: {', '.join(tools)}."


def _block_end(lines: Sequence[str], start: int) -> int | None:
    """The line END TOOL that ends a block; calls that are quoted in the block have their own."""
    depth = 1
    for number in range(start, len(lines)):
        if _ends(lines[number]):
            depth -= 1
            if not depth:
                return number
        elif lines[number].startswith(f"{_MARKER} ") and _header(lines[number]) in TOOLS:
            depth += 1
    return None


def _ends_twice(lines: Sequence[str], start: int) -> bool:
    """Whether another END TOOL follows, with text between that no call and no result begins."""
    text = False
    for number in range(start, len(lines)):
        line = lines[number]
        if _ends(line):
            return text
        if _header(line) is not None or _is_result(line):
            return False
        text = text or bool(line.strip("`~ \t"))
    return False


def _unfenced(lines: Sequence[str], path: str) -> tuple[str, tuple[str, ...]]:
    """The text of a block, without the one code fence around it; a fence that may belong to the text stays."""
    bare = list(lines)
    while bare and not bare[-1].strip():
        bare.pop()
    opener = _FENCE.fullmatch(bare[0]) if len(bare) > 1 and len(bare[0]) <= MAX_CALL_LINE else None
    around = opener is not None and _closes(bare[-1], opener[1]) and _one_fence(bare[1:-1], opener[1])
    if opener is not None and path.lower().endswith(_MARKDOWN):
        around = around and opener[2].lower() in _MARKDOWN_LANGUAGES
    kept = bare[1:-1] if around else lines
    return "".join(f"{line}\n" for line in kept), ("fence_around_text",) if around else ()


def _one_fence(lines: Sequence[str], fence: str) -> bool:
    """Whether no line of a block closes the fence around it; fences inside of it come in pairs."""
    depth = 1
    for line in lines:
        if _closes(line, fence):
            depth -= 1
            if not depth:
                return False
        elif line.startswith(fence):
            depth += 1
    return depth == 1
