"""Taking a reply apart: reasoning first, then fenced blocks, file names and answer lines.

Fences are found by markdown-it-py (CommonMark, blocks only); where models are known to break CommonMark, own rules
stand on top: nested fences in markdown files, list items that end too early, missing openers and closers. Nothing here
repairs content. Every step is linear in the reply; what could repeat is bounded by the constants below.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import PurePosixPath
from typing import Final, Literal

from markdown_it import MarkdownIt

from pytest_llmbench.harness.numbers import is_placeholder, parse_number
from pytest_llmbench.spec import Answer, Delivery

MAX_MARKDOWN_CHARS: Final = 100_000
"""A longer reply is scanned line by line only."""
MAX_MARKDOWN_LINES: Final = 4_000
"""A reply with more lines is scanned line by line only."""
MAX_RESCANS: Final = 16
"""So often a fence is searched to the end of the reply without a result; after that CommonMark's end is taken."""
MAX_LIST_MARKERS: Final = 4
"""List markers that may stand before a fence on its own line."""
MIN_FENCE: Final = 3
"""Shortest fence."""
RENDERED_FENCE: Final = 4
"""Shortest fence of the documented form."""
CLOSER_EXTRA_INDENT: Final = 3
"""A closing fence may be indented by so much more than its opener."""
TAB_STOP: Final = 4
"""Columns of a tab in an indent."""
MAX_HEAD_CHARS: Final = 300
"""Longer lines are no name lines, no first-line names and no elision comments."""
MAX_KEY_CHARS: Final = 40
"""So far behind the word ANSWER its colon is looked for."""
QUOTE_WINDOW: Final = 200
"""Characters of its line before a thinking tag in which an open quote is looked for."""

Form = Literal["integer", "decimal"]

_TAGS: Final = ("think", "thinking", "thought", "reasoning", "seed:think")
_OPEN_TAG: Final = re.compile(rf"<({'|'.join(_TAGS)})>|\[(THINK)\]")
_ANY_TAG: Final = re.compile(rf"(</?)({'|'.join(_TAGS)})>|(?P<square>\[/?)(THINK)\]")
_HARMONY_START: Final = re.compile(r"(?:<\|start\|>assistant)?<\|channel\|>(analysis|commentary|final)[^<\n]*")
_HARMONY_FINAL: Final = re.compile(
    r"(?:<\|start\|>assistant\s{0,2})?<\|channel\|>final[^<\n]*(?:<\|constrain\|>\w*)?<\|message\|>"
)
_HARMONY_END: Final = re.compile(r"<\|(?:end|return)\|>")
_QUOTES: Final = frozenset("`'\"\u2018\u2019\u201c\u201d")
_TAG_QUOTES: Final = ("`", "'", '"')

_MARKER: Final = re.compile(r"(?:[-*+]|[0-9]{1,9}[.)])[ \t]+")
_FILE_LIKE: Final = re.compile(r"[\w./\\~@+-]*\.[A-Za-z][A-Za-z0-9]{0,9}")
_INFO_KEY: Final = re.compile(r"(?:title|file|filename|name|path)\s*[=:]\s*", re.IGNORECASE)
_LEAD: Final = re.compile(
    r"(?:#{1,6}\s+|[-*+]\s+|[0-9]{1,4}[.)]\s+|(?:create|add|write|save|update|the|new|a|this|is|in|as|path|"
    r"file\s?name|file)\b[\s:]*)",
    re.IGNORECASE,
)
_COMMENT: Final = re.compile(r"\s*(?:#+|//+|--|;+|%|/\*+|<!--)\s*(.*)")
_COMMENT_END: Final = re.compile(r"(?:\*/|-->)$")
_NAME_CHARS: Final = re.compile(r"[\w./\\-]")
_MARKUP: Final = "*_`\"'\u2018\u2019\u201c\u201d()[]<>{} \t"

_LANGUAGES: Final[Mapping[str, frozenset[str]]] = {
    ".py": frozenset(("py", "python", "python3", "py3")),
    ".md": frozenset(("md", "markdown")),
    ".markdown": frozenset(("md", "markdown")),
    ".txt": frozenset(("txt", "text", "plain", "plaintext", "")),
    ".json": frozenset(("json", "jsonc")),
    ".js": frozenset(("js", "javascript", "node")),
    ".ts": frozenset(("ts", "typescript")),
    ".sh": frozenset(("sh", "bash", "shell", "zsh")),
    ".yml": frozenset(("yml", "yaml")),
    ".yaml": frozenset(("yml", "yaml")),
    ".toml": frozenset(("toml",)),
    ".ini": frozenset(("ini", "cfg", "conf")),
    ".cfg": frozenset(("ini", "cfg", "conf")),
    ".csv": frozenset(("csv",)),
    ".html": frozenset(("html", "htm")),
    ".sql": frozenset(("sql",)),
    ".rs": frozenset(("rs", "rust")),
    ".rst": frozenset(("rst", "restructuredtext")),
}
_ALL_LANGUAGES: Final = frozenset(language for languages in _LANGUAGES.values() for language in languages)
_PROSE_SUFFIXES: Final = frozenset((".txt", ".md", ".markdown", ".rst"))
_MARKDOWN_SUFFIXES: Final = frozenset((".md", ".markdown"))
_CODE_SUFFIXES: Final = frozenset(
    (
        ".py",
        ".pyi",
        ".js",
        ".ts",
        ".jsx",
        ".tsx",
        ".json",
        ".toml",
        ".ini",
        ".cfg",
        ".yaml",
        ".yml",
        ".sh",
        ".c",
        ".h",
        ".cpp",
        ".rs",
        ".go",
        ".java",
        ".rb",
        ".sql",
        ".css",
    )
)
_LOOKALIKES: Final = re.compile(
    "[\u00a0\u00ad\u2000-\u200d\u2010\u2011\u2018-\u201f\u2028\u2029\u202f\u2032\u2033\u205f\u2060\u2212\u3000"
    "\ufeff\uff02\uff07\uff08\uff09\uff0c\uff0e\uff1a\uff1b\uff1d]"
)
_ELISION: Final = re.compile(r"\s*(?:(?:pass|\.\.\.)\s*)?(?:(?:#+|//+|--|;+|/\*+|<!--)\s*|\[)(?P<text>.*)", re.DOTALL)
_DOTS: Final = re.compile(r"\.\.\.|\u2026")
_DOTTED_WORDS: Final = re.compile(
    r"\b(?:rest|existing|unchanged|same|remaining|remainder|previous|other|omitted|original|methods?|functions?|code|"
    r"implementation|imports|here|before|above|stays?|continues?|truncated|snip)\b",
    re.IGNORECASE,
)
_PLAIN_ELISION: Final = re.compile(
    r"[(\[\s]*(?:(?:the )?(?:rest|remainder) of (?:the |your |my |this )?(?:\w+ )?"
    r"(?:code|file|class|methods?|functions?|implementation|module|script|program)\b"
    r"|(?:the )?(?:your |my )?(?:existing|previous|remaining|original|other|unchanged) "
    r"(?:code|methods?|functions?|implementation|imports|class(?:es)?)(?: (?:is|are|go(?:es)?|stays?|remains?|here|"
    r"unchanged|as|omitted)\b|[\s)\].]*(?:-->|\*/)?$)"
    r"|same as (?:before|above)\b|(?:code |rest )?(?:omitted|unchanged)(?: for brevity)?[\s)\].]*$|snip\b)",
    re.IGNORECASE,
)
_ANSWER_WORD: Final = re.compile(r"(?<![A-Za-z0-9])answer(?![A-Za-z])", re.IGNORECASE)
_ANSWER_LEAD: Final = " \t>*_`#-+\u2022\"'\u201c\u201d\u2018\u2019([$"
_NUMBERED: Final = re.compile(r"[0-9]{1,3}[.)][ \t]")
_DELIMITER: Final = re.compile(r"[:=\uff1a]")


# --- reasoning -------------------------------------------------------------------------------------------------------


def split_thinking(content: str) -> tuple[str, str, str | None]:
    """Take a reply; give its reasoning, what follows, and ``thinking_not_closed`` where the reasoning never ends.

    Only a block at the start of the reply is reasoning. Tags later on are content.
    """
    parts: list[str] = []
    position = _skip_blank(content, 0)
    if (ended := _harmony(content, position)) is not None:
        return ended
    while (tag := _OPEN_TAG.match(content, position)) is not None:
        closing = f"</{tag[1]}>" if tag[1] else "[/THINK]"
        end = _first_unquoted(content, closing, tag.end())
        if end is None:
            return _joined([*parts, content[tag.end() :]]), "", "thinking_not_closed"
        parts.append(content[tag.end() : end])
        position = _skip_blank(content, end + len(closing))
    if parts:
        return _joined(parts), content[position:], None
    return _without_opening_tag(content)


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(part.strip() for part in parts if part.strip())


def _skip_blank(content: str, position: int) -> int:
    while position < len(content) and (content[position].isspace() or content[position] == "\ufeff"):
        position += 1
    return position


def _first_unquoted(content: str, closing: str, start: int) -> int | None:
    at = content.find(closing, start)
    while at >= 0:
        if not _quoted(content, at, at + len(closing)):
            return at
        at = content.find(closing, at + 1)
    return None


def _quoted(content: str, start: int, end: int) -> bool:
    """Whether a tag stands directly between quotes, or ends a quote that was opened before it on its line."""
    after = content[end : end + MIN_FENCE]
    if start and content[start - 1] in _QUOTES and after[:1] in _QUOTES and after[:1]:
        return True
    if not after.startswith(_TAG_QUOTES) or after == "`" * MIN_FENCE:
        return False
    window = max(content.rfind("\n", 0, start) + 1, start - QUOTE_WINDOW) if start else 0
    return content.count(after[0], window, start) % 2 == 1


def _harmony(content: str, position: int) -> tuple[str, str, str | None] | None:
    """Split the channels of a harmony reply; None where the reply is not in that form."""
    head = _HARMONY_START.match(content, position)
    if head is None:
        return None
    final = next(
        (m for m in _HARMONY_FINAL.finditer(content, position) if not _quoted(content, m.start(), m.end())), None
    )
    if final is not None:
        rest = content[final.end() :]
        return _channels(content[position : final.start()]), _until_end(rest), None
    if head[1] == "final":
        return "", content[head.end() :], None
    end = next(_unquoted(_HARMONY_END, content, head.end()), None)
    if end is None or not content[end.end() :].strip() or "<|channel|>" in content[end.end() :]:
        return _channels(content[position:]), "", "thinking_not_closed"
    return _channels(content[position : end.start()]), content[end.end() :].lstrip(), None


def _unquoted(pattern: re.Pattern[str], content: str, start: int) -> Iterator[re.Match[str]]:
    return (match for match in pattern.finditer(content, start) if not _quoted(content, match.start(), match.end()))


def _channels(text: str) -> str:
    plain = re.sub(r"(?:<\|start\|>assistant)?<\|channel\|>\w*", "\n", text)
    return re.sub(r"<\|(?:message|end|return|start)\|>", "", plain).strip()


def _until_end(rest: str) -> str:
    stripped = rest.rstrip()
    for mark in ("<|return|>", "<|end|>"):
        if stripped.endswith(mark):
            return stripped[: -len(mark)]
    return rest


def _without_opening_tag(content: str) -> tuple[str, str, str | None]:
    """A closing tag alone on its line, outside of closed fences: the template had opened the reasoning."""
    if not any(f"</{tag}>" in content for tag in _TAGS) and "[/THINK]" not in content:
        return "", content, None
    fence: tuple[str, int] | None = None
    pending: int | None = None
    offset, lines = 0, content.split("\n")
    for line in lines:
        bare = line.strip()
        tag = _ANY_TAG.fullmatch(bare)
        if tag is not None and "/" not in (tag[1] or tag["square"]):
            if fence is None:
                return "", content, None
        elif tag is not None:
            if fence is None:
                return _cut(content, offset + len(line))
            pending = offset + len(line) if pending is None else pending
        elif bare.startswith(("```", "~~~")):
            run = _run(bare)
            if fence is not None and bare[0] == fence[0] and run >= fence[1]:
                if bare[run:].strip():
                    if pending is not None:
                        break
                else:
                    fence, pending = None, None
            elif fence is None:
                fence = (bare[0], run)
        offset += len(line) + 1
    return ("", content, None) if pending is None else _cut(content, pending)


def _cut(content: str, end: int) -> tuple[str, str, str | None]:
    thinking = content[:end].rstrip()
    thinking = thinking[: thinking.rfind("</") if thinking.endswith(">") else thinking.rfind("[/")]
    return thinking.strip(), content[_skip_blank(content, end) :], None


# --- fences ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Fence:
    """A line that holds nothing but a fence, perhaps with list or quote markers before and an info string behind."""

    line: int
    indent: int
    char: str
    run: int
    info: str
    marked: bool
    quoted: bool

    @property
    def bare(self) -> bool:
        """Whether it could close a block."""
        return not self.info and not self.marked


@dataclass(frozen=True)
class _Naming:
    """What a block is said to be: a requested name, another explicit name, or neither."""

    name: str | None = None
    other: str | None = None
    weak: bool = False


@dataclass(frozen=True)
class _Block:
    """One fenced block: its lines (``end`` is behind its closing fence), content and name."""

    start: int
    end: int
    language: str
    content: str
    closed: bool
    naming: _Naming


@dataclass
class _Scan:
    """One reply on its way through the block rules."""

    lines: Sequence[str]
    names: Sequence[str]
    fences: Sequence[_Fence]
    blocks: list[_Block] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    rescans: int = 0


def _run(text: str) -> int:
    return len(text) - len(text.lstrip(text[0]))


def _fence_at(number: int, line: str) -> _Fence | None:
    """Give the fence that a line is, or None."""
    if "```" not in line and "~~~" not in line:
        return None
    rest = line.lstrip(" \t>")
    marked = False
    for _ in range(MAX_LIST_MARKERS):
        marker = _MARKER.match(rest)
        if marker is None:
            break
        rest, marked = rest[marker.end() :], True
    if not rest.startswith(("```", "~~~")):
        return None
    run = _run(rest)
    info = rest[run:].strip()
    if rest[0] == "`" and "`" in info:
        return None
    prefix = line[: len(line) - len(rest)]
    return _Fence(number, _columns(prefix), rest[0], run, info, marked, ">" in prefix)


def _columns(prefix: str) -> int:
    return len(prefix.expandtabs(TAB_STOP))


@cache
def _markdown() -> MarkdownIt:
    blocks = MarkdownIt("zero").enable(["fence", "list", "blockquote", "code", "hr", "heading"])
    return blocks.disable(["inline", "text_join"], ignoreInvalid=True)


def _markdown_ends(lines: Sequence[str]) -> dict[int, int] | None:
    """Give end per opening line as CommonMark has it, or None where the reply is too large for it."""
    if len(lines) > MAX_MARKDOWN_LINES or sum(map(len, lines)) > MAX_MARKDOWN_CHARS:
        return None
    text = "\n".join(lines).replace("\r", " ")
    tokens = _markdown().parse(text)
    return {token.map[0]: token.map[1] for token in tokens if token.type == "fence" and token.map is not None}


def _scan(text: str, names: Sequence[str]) -> _Scan:
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    fences = [fence for number, line in enumerate(lines) if (fence := _fence_at(number, line)) is not None]
    scan = _Scan(lines, names, fences)
    if fences and not _missing_opener(scan):
        _collect(scan)
    return scan


def _missing_opener(scan: _Scan) -> bool:
    """Bare code and one lone closing fence as last line: all before it is the block."""
    fence = scan.fences[0]
    body = scan.lines[: fence.line]
    behind = scan.lines[fence.line + 1 :]
    if len(scan.fences) > 1 or not fence.bare or fence.quoted or not any(line.strip() for line in body):
        return False
    if any(line.strip() and _ANSWER_WORD.match(line.lstrip(_ANSWER_LEAD)) is None for line in behind):
        return False
    first = next(number for number, line in enumerate(body) if line.strip())
    head = body[first].strip()
    naming = _alone(head, scan.names)
    language = ""
    if naming is None and head.casefold() in _ALL_LANGUAGES:
        language = head.casefold()
    elif naming is None:
        first -= 1
        naming = _from_comment(body, first + 1, scan.names)
    content = "\n".join(body[first + 1 :]) + "\n"
    scan.blocks.append(_Block(0, fence.line + 1, language, content.lstrip("\n"), True, naming or _Naming()))
    scan.flags.append("fence_missing_opener")
    return True


def _collect(scan: _Scan) -> None:
    """Walk over the fences; where an own rule moves an end, CommonMark's later fences count no more."""
    ends = _markdown_ends(scan.lines) or None
    behind = 0
    for index, fence in enumerate(scan.fences):
        if fence.line < behind or (ends is not None and fence.line not in ends):
            continue
        expected = ends[fence.line] if ends is not None else None
        block = _block(scan, index, behind, expected)
        scan.blocks.append(block)
        behind = block.end
        if expected is not None and block.end != expected:
            ends = None
    if any(not block.closed for block in scan.blocks):
        scan.flags.append("unclosed_fence")


def _block(scan: _Scan, index: int, behind: int, expected: int | None) -> _Block:
    fence = scan.fences[index]
    naming = _naming(scan, fence, behind)
    language = _language(fence.info)
    if fence.quoted:
        end, closed = _quote_end(scan, index)
    else:
        nested = _is_markdown(language, naming)
        end, closed = _end(scan, index, nested, expected)
    return _Block(fence.line, end, language, _content(scan.lines, fence, end, closed), closed, naming)


def _is_markdown(language: str, naming: _Naming) -> bool:
    name = naming.name or naming.other
    return _suffix(name) in _MARKDOWN_SUFFIXES if name else language in _LANGUAGES[".md"]


def _end(scan: _Scan, index: int, nested: bool, expected: int | None) -> tuple[int, bool]:
    """Give the line behind the block, and whether a closing fence ended it."""
    if scan.rescans < MAX_RESCANS:
        end = _nested_end(scan, index) if nested else _plain_end(scan, index)
        if end is not None:
            return end, True
        scan.rescans += 1
        if nested:
            return _truncated_end(scan, index)
    elif nested and (end := _plain_end(scan, index)) is not None:
        return end, True
    return (expected, False) if expected is not None else (len(scan.lines), False)


def _closes(fence: _Fence, opener: _Fence) -> bool:
    return (
        fence.bare
        and fence.char == opener.char
        and fence.run >= opener.run
        and fence.indent <= opener.indent + CLOSER_EXTRA_INDENT
    )


def _plain_end(scan: _Scan, index: int) -> int | None:
    opener = scan.fences[index]
    for place in range(index + 1, len(scan.fences)):
        fence = scan.fences[place]
        if _closes(fence, opener):
            return fence.line + 1
        if fence.marked and opener.indent:
            return None
    return None


def _nested_end(scan: _Scan, index: int) -> int | None:
    """A fence with an info string opens a nested block, a bare one closes the innermost."""
    opener = scan.fences[index]
    inner: list[int] = []
    for place in range(index + 1, len(scan.fences)):
        fence = scan.fences[place]
        if fence.char != opener.char or fence.run < opener.run:
            continue
        if fence.info:
            inner.append(fence.run)
        elif inner and fence.run >= inner[-1]:
            inner.pop()
        elif not inner and _closes(fence, opener):
            return fence.line + 1
    return None


def _truncated_end(scan: _Scan, index: int) -> tuple[int, bool]:
    """A nested block without an end: cut at the last bare fence before another requested file, else at the end."""
    opener = scan.fences[index]
    last_bare: int | None = None
    for place in range(index + 1, len(scan.fences)):
        fence = scan.fences[place]
        if _closes(fence, opener):
            last_bare = fence.line
        elif fence.info and last_bare is not None:
            above = _above(scan.lines, fence.line, last_bare + 1)
            naming = _alone(above, scan.names) if above else None
            if naming is not None and naming.name is not None:
                return last_bare + 1, True
    return len(scan.lines), False


def _quote_end(scan: _Scan, index: int) -> tuple[int, bool]:
    """A fence in a block quote ends with its closing fence or with the quote."""
    opener = scan.fences[index]
    place = index + 1
    for number in range(opener.line + 1, len(scan.lines)):
        if not scan.lines[number].lstrip(" \t").startswith(">"):
            return number, False
        if place < len(scan.fences) and scan.fences[place].line == number:
            if _closes(scan.fences[place], opener):
                return number + 1, True
            place += 1
    return len(scan.lines), False


def _content(lines: Sequence[str], opener: _Fence, end: int, closed: bool) -> str:
    """Give a block's text without its opener's indent; where the first line has less, no line loses more than that."""
    body: Sequence[str] = lines[opener.line + 1 : end - 1 if closed else end]
    if opener.quoted:
        body = [re.sub(r"^[ \t]*> ?", "", line) for line in body]
    elif opener.indent and (first := next((line for line in body if line.strip()), None)) is not None:
        indent = min(opener.indent, _columns(first[: len(first) - len(first.lstrip(" \t"))]))
        body = [_dedent(line, indent) for line in body]
    if not closed:
        body = _rstrip(body)
    return "\n".join(body) + "\n" if body else ""


def _rstrip(body: Sequence[str]) -> Sequence[str]:
    last = len(body)
    while last and not body[last - 1].strip():
        last -= 1
    return body[:last]


def _dedent(line: str, indent: int) -> str:
    column = place = 0
    while place < len(line) and column < indent and line[place] in " \t":
        column = column + 1 if line[place] == " " else (column // TAB_STOP + 1) * TAB_STOP
        place += 1
    return " " * max(0, column - indent) + line[place:]


# --- names -----------------------------------------------------------------------------------------------------------


def _suffix(name: str) -> str:
    return PurePosixPath(name.replace("\\", "/")).suffix.casefold()


def _language(info: str) -> str:
    word = info.split(None, 1)[0] if info else ""
    word = word.strip("{}").split(":", 1)[0].lstrip(".").casefold()
    return "" if _INFO_KEY.match(word + "=") else word


def _fits(language: str, name: str) -> bool:
    suffix = _suffix(name)
    return language in _LANGUAGES.get(suffix, frozenset((suffix[1:],)))


def _plain(name: str) -> str:
    return name[2:] if name.startswith("./") else name


def _judge(given: str, names: Sequence[str], loose: bool = True) -> _Naming | None:
    """Take a name as the model wrote it: requested, another file's, or (None) no file name at all."""
    plain = _plain(given)
    if plain in names:
        return _Naming(name=plain)
    if loose and (_FILE_LIKE.fullmatch(given) or any(plain.casefold() == name.casefold() for name in names)):
        return _Naming(other=given)
    return None


def _naming(scan: _Scan, fence: _Fence, behind: int) -> _Naming:
    """Sources in order: info string, a line above that is just a name, first-line comment, a name in prose above."""
    if (naming := _from_info(fence.info, scan.names)) is not None:
        return naming
    above = _above(scan.lines, fence.line, behind)
    if above and (naming := _alone(above, scan.names)) is not None:
        return naming
    if (naming := _from_comment(scan.lines, fence.line + 1, scan.names)) is not None:
        return naming
    return _from_prose(above, _language(fence.info), scan.names)


def _from_info(info: str, names: Sequence[str]) -> _Naming | None:
    if not info or len(info) > MAX_HEAD_CHARS:
        return None
    info = info.strip("{} ")
    words = info.split(None, 1)
    whole = [info, *(words[1:])]
    candidates = [*whole, *info.split(), *(part for word in info.split() for part in word.split(":")[1:])]
    cleaned = [_INFO_KEY.sub("", candidate).strip("\"'`,{}()[] ") for candidate in candidates]
    for candidate in cleaned:
        if _plain(candidate) in names:
            return _Naming(name=_plain(candidate))
    for place, candidate in enumerate(cleaned):
        language_word = place in (0, len(whole)) and "." not in candidate
        if not language_word and (naming := _judge(candidate, names)) is not None:
            return naming
    return None


def _above(lines: Sequence[str], start: int, behind: int) -> str:
    for number in range(start - 1, behind - 1, -1):
        if line := lines[number].strip():
            return line if len(line) <= MAX_HEAD_CHARS else ""
    return ""


def _alone(line: str, names: Sequence[str]) -> _Naming | None:
    """Judge a line that is nothing but a name, with markup and a lead such as ``1. Create`` or ``### File:``."""
    if len(line) > MAX_HEAD_CHARS:
        return None
    if _plain(line) in names:
        return _Naming(name=_plain(line))
    rest = line.lstrip("> \t")
    while True:
        bare = rest.strip(_MARKUP + ":")
        if _plain(bare) in names or (rest.strip(_MARKUP + ":,") and _FILE_LIKE.fullmatch(bare)):
            return _judge(bare, names)
        lead = _LEAD.match(rest.lstrip(_MARKUP)) or _LEAD.match(rest)
        if lead is None:
            return _judge(bare, names)
        rest = (rest.lstrip(_MARKUP) if _LEAD.match(rest.lstrip(_MARKUP)) else rest)[lead.end() :]


def _from_comment(lines: Sequence[str], number: int, names: Sequence[str]) -> _Naming | None:
    if number < len(lines) and lines[number].lstrip().startswith("#!"):
        number += 1
    if number >= len(lines) or len(lines[number]) > MAX_HEAD_CHARS:
        return None
    comment = _COMMENT.match(lines[number])
    if comment is None:
        return None
    text = _COMMENT_END.sub("", comment[1].rstrip()).strip()
    if (naming := _alone(text, names)) is not None:
        return naming
    word = text.split(None, 1)[0].rstrip(":,") if text else ""
    return _judge(word.strip(_MARKUP), names, loose=False)


def _from_prose(above: str, language: str, names: Sequence[str]) -> _Naming:
    """Find requested names in a sentence; a block in a language of another kind is not that file."""
    found = [(place, name) for name in names for place in _places(above, name)]
    if not found:
        return _Naming()
    name = max(found)[1]
    if _fits(language, name) and language:
        return _Naming(name=name)
    return _Naming(name=name, weak=True) if not language or _fits(language, name) else _Naming()


def _places(text: str, name: str) -> Iterator[int]:
    """Give where a name stands as a token of its own."""
    place = text.find(name)
    while place >= 0:
        before = text[:place][-1:]
        after = text[place + len(name) :]
        if text[:place].endswith("./") and not _NAME_CHARS.match(text[: place - 2][-1:]):
            before = ""
        ended = re.match(r"[\w/\\-]|\.\w", after) is None
        if ended and not _NAME_CHARS.match(before):
            yield place
        place = text.find(name, place + 1)


# --- files -----------------------------------------------------------------------------------------------------------


@dataclass
class _Found:
    """What the blocks of one reply hold."""

    versions: dict[str, list[str]] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)


def _files(scan: _Scan, text: str) -> _Found:
    found = _Found(flags=list(scan.flags))
    for block in scan.blocks:
        if block.naming.other is not None:
            _note_unknown(found, block.naming.other, scan.names)
        elif block.naming.name is not None and not block.naming.weak:
            found.versions.setdefault(block.naming.name, []).append(block.content)
    _bind_rest(scan, found)
    if not scan.fences and len(scan.names) == 1:
        _unfenced(text, scan.names[0], found)
    found.flags += [f"duplicates:{name}={len(all_)}" for name, all_ in found.versions.items() if len(all_) > 1]
    found.versions = {name: found.versions[name] for name in scan.names if name in found.versions}
    return found


def _note_unknown(found: _Found, given: str, names: Sequence[str]) -> None:
    found.unknown.append(given)
    if any(_plain(given).casefold() == name.casefold() for name in names):
        found.flags.append(f"case_mismatch:{given}")


def _bind_rest(scan: _Scan, found: _Found) -> None:
    """Use blocks that prose names, and bind the one requested file to the best block without a name."""
    weak = [block for block in scan.blocks if block.naming.weak and block.naming.name not in found.versions]
    if len(scan.names) != 1:
        for block in weak:
            if block.naming.name is not None:
                found.versions.setdefault(block.naming.name, []).append(block.content)
        return
    name = scan.names[0]
    if name in found.versions:
        return
    unnamed = [block for block in scan.blocks if block.naming == _Naming() and block.content.strip()]
    pool = sorted([*weak, *unnamed], key=lambda block: (_rank(block, name), block.start))
    if not pool:
        return
    best = [block for block in pool if _rank(block, name) == _rank(pool[-1], name)]
    if best[-1].naming.weak:
        found.versions[name] = [block.content for block in best]
        return
    found.versions[name] = [best[-1].content]
    if "fence_missing_opener" not in found.flags:
        found.flags.append("name_inferred")
    if len(best) > 1:
        found.flags.append("several_candidates")


def _rank(block: _Block, name: str) -> int:
    order = (not block.language, block.naming.weak, bool(block.language) and _fits(block.language, name))
    return sum(1 << place for place, true in enumerate(order) if true)


def _unfenced(text: str, name: str, found: _Found) -> None:
    if not text.strip() or _suffix(name) not in _PROSE_SUFFIXES:
        return
    lines = text.strip("\n").split("\n")
    while lines and (not lines[-1].strip() or _ANSWER_WORD.match(lines[-1].lstrip(_ANSWER_LEAD))):
        lines.pop()
    if lines and _alone(lines[0].strip(), [name]) == _Naming(name=name):
        del lines[0]
    content = "\n".join(lines).strip("\n")
    if content.strip():
        found.versions[name] = [content + "\n"]
        found.repairs.append("unfenced_reply_taken_as_file")


def _content_flags(name: str, content: str) -> Iterator[str]:
    """Give what is noticed in a delivered file: shortened parts and look-alike characters."""
    for number, line in enumerate(content.split("\n"), start=1):
        if len(line) <= MAX_HEAD_CHARS and _elided(line):
            yield f"elision_suspected:{name}:{number}"
    if _suffix(name) in _CODE_SUFFIXES:
        yield from (f"lookalike:U+{ord(char):04X}" for char in sorted(set(_LOOKALIKES.findall(content))))


def _elided(line: str) -> bool:
    match = _ELISION.match(line)
    if match is None:
        return False
    text = match["text"].strip()
    if _DOTS.search(text):
        words = re.sub(r"[^\w\s]", "", text).strip()
        return not words or _DOTTED_WORDS.search(text) is not None
    return _PLAIN_ELISION.match(text) is not None


# --- answers ---------------------------------------------------------------------------------------------------------

_IN_CODE: Final = 0
_INLINE: Final = 1
_OWN_LINE: Final = 2


def _answers(scan: _Scan, keys: Sequence[str], form: Form) -> tuple[dict[str, Answer], list[str]]:
    """Give the last usable answer per key; own lines before mentions in a sentence, both before fenced code."""
    best: dict[str, tuple[tuple[bool, int], Answer]] = {}
    if keys:
        inside = _inside(scan)
        for number, line in enumerate(scan.lines):
            for key, value, place in _answer_parts(line, keys):
                answer = parse_number(value, form)
                rank = (answer.problem != "no_number", _IN_CODE if number in inside else place)
                if key not in best or rank >= best[key][0]:
                    best[key] = (rank, answer)
    flagged = any(rank[1] == _IN_CODE for rank, _ in best.values())
    return {key: best[key][1] for key in keys if key in best}, ["answer_in_code"] if flagged else []


def _inside(scan: _Scan) -> frozenset[int]:
    return frozenset(number for block in scan.blocks for number in range(block.start, block.end))


def _answer_parts(line: str, keys: Sequence[str]) -> Iterator[tuple[str, str, int]]:
    """Give key, value and rank of every answer that stands on a line."""
    words = list(_ANSWER_WORD.finditer(line))
    if not words:
        return
    own = _stands_first(line, words[0].start())
    words = [word for word in words if word[0].isupper() or (own and word is words[0])]
    for place, word in enumerate(words):
        end = words[place + 1].start() if place + 1 < len(words) else len(line)
        own_line = own and place == 0
        found = _key_and_value(line[word.end() : end], keys)
        if found is not None:
            value = found[1] if own_line and end == len(line) else found[1].rstrip(",;*_` ")
            yield found[0], value, _OWN_LINE if own_line else _INLINE


def _stands_first(line: str, start: int) -> bool:
    lead = line[:start].strip(_ANSWER_LEAD)
    return not lead or (_NUMBERED.fullmatch(lead + " ") is not None)


def _key_and_value(text: str, keys: Sequence[str]) -> tuple[str, str] | None:
    delimiter = _DELIMITER.search(text, 0, MAX_KEY_CHARS)
    if delimiter is None:
        return None
    key = _key(text[: delimiter.start()], keys)
    value = text[delimiter.end() :].strip(" \t*_")
    if value.startswith("`") or value.endswith("`"):
        value = value.strip(" `*_")
    return None if key is None or is_placeholder(value) else (key, value)


def _key(written: str, keys: Sequence[str]) -> str | None:
    for given in (written.strip(), written.strip(" \t*`#()[]\"'"), written.strip(" \t*_`#()[]\"'.")):
        if given in keys:
            return given
        folded = [key for key in keys if key.casefold() == given.casefold()]
        if given and len(folded) == 1:
            return folded[0]
    return keys[0] if len(keys) == 1 and not written.strip(" \t*_`") else None


# --- the whole reply -------------------------------------------------------------------------------------------------


def parse_reply(
    content: str,
    thinking: str,
    *,
    files: Sequence[str],
    answers: Sequence[str],
    form: Form = "integer",
    exhausted: bool = False,
) -> Delivery:
    """Take a reply and the text of the server's own reasoning field; give what was delivered of what was asked for.

    ``files`` and ``answers`` are the requested names and keys, ``form`` is how numbers are written, ``exhausted`` says
    that the reply ended because its budget was used up. No text raises, and equal input gives equal output.
    """
    tagged, text, problem = split_thinking(content)
    delivery = _delivery(text, files, answers, form)
    if delivery.answers or delivery.files:
        return delivery
    reason = problem or _reason(text, _joined((thinking, tagged)), files, answers, form, exhausted)
    flags = (*delivery.flags, "budget_exhausted") if problem and exhausted else delivery.flags
    return Delivery(text, flags=flags, unknown_files=delivery.unknown_files, repairs=delivery.repairs, no_answer=reason)


def _delivery(text: str, files: Sequence[str], answers: Sequence[str], form: Form) -> Delivery:
    plain = text.replace("\r\n", "\n")
    scan = _scan(plain, list(dict.fromkeys(files)))
    if plain != text:
        scan.flags.append("crlf")
    found = _files(scan, plain)
    given, answer_flags = _answers(scan, list(dict.fromkeys(answers)), form)
    last = {name: versions[-1] for name, versions in found.versions.items()}
    noticed = [flag for name, written in last.items() for flag in _content_flags(name, written)]
    return Delivery(
        text=text,
        answers=given,
        files=last,
        versions={name: tuple(versions) for name, versions in found.versions.items()},
        flags=tuple(dict.fromkeys([*found.flags, *answer_flags, *noticed])),
        unknown_files=tuple(dict.fromkeys(found.unknown)),
        repairs=tuple(found.repairs),
    )


def _reason(
    text: str, thinking: str, files: Sequence[str], answers: Sequence[str], form: Form, exhausted: bool
) -> str | None:
    if text.strip():
        return "nothing_found" if files or answers else None
    if not thinking.strip():
        return "empty_reply"
    if exhausted:
        return "budget_exhausted_in_thinking"
    inner = _delivery(thinking, files, answers, form)
    usable = any(answer.value is not None for answer in inner.answers.values())
    named = bool(inner.files) and "name_inferred" not in inner.flags and not inner.repairs
    return "answer_in_reasoning_channel" if usable or named else "stopped_in_thinking"


def render_reply(answers: Mapping[str, object], files: Mapping[str, str]) -> str:
    """Take answers and file contents; give the reply that delivers them in the documented form."""
    parts = [_rendered_file(name, content) for name, content in files.items()]
    if answers:
        parts.append("".join(f"ANSWER {key}: {value}\n" for key, value in answers.items()))
    return "\n".join(parts)


def _rendered_file(name: str, content: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", content)), default=0)
    fence = "`" * max(RENDERED_FENCE, longest + 1)
    body = content if not content or content.endswith("\n") else content + "\n"
    return f"{name}\n{fence}\n{body}{fence}\n"
