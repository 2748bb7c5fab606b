"""A server that looks: it decodes the pictures of a request and answers from their pixels, and from nothing else.

It speaks Ollama's protocol and OpenAI's. It counts the shapes of M02, measures the bars of M03, and reads a code by
comparing its letters with drawn ones. What is asked is in the prompt; what is right is only in the picture.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from runtimes.conftest import OLLAMA_DONE, chunk, ollama_says, usage
from runtimes.loopback import Say, Script, Seen, js, ndjson, sse
from scipy import ndimage

from pytest_llmbench.campaign import vision
from pytest_llmbench.drawing import pixels

Pixels = NDArray[Any]

COLOURS = {"red": (214, 39, 40), "blue": (31, 79, 216), "green": (34, 139, 58)}
TEAL, BLUE, ORANGE = (18, 130, 124), (31, 79, 216), (235, 124, 20)
FULL = {"square": 0.95, "circle": 0.7}
"""Part of its box that a form fills at least; a triangle fills half of it."""
PREFIX = "data:image/png;base64,"


def opened(data: bytes) -> Pixels:
    """The RGB values of a PNG file, rows first."""
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).astype(int)


def parts(picture: Pixels, colour: tuple[int, int, int]) -> list[tuple[slice, slice]]:
    """The boxes of everything that has exactly this colour, from the left to the right."""
    labels, _ = ndimage.label((picture == colour).all(axis=2), structure=np.ones((3, 3)))
    return sorted(ndimage.find_objects(labels), key=lambda box: box[1].start)


def form_of(picture: Pixels, box: tuple[slice, slice], colour: tuple[int, int, int]) -> str:
    filled = float((picture[box] == colour).all(axis=2).mean())
    return next((form for form, least in FULL.items() if filled >= least), "triangle")


def counted(picture: Pixels) -> list[int]:
    """What M02 asks for."""
    wide = (picture == 0).all(axis=2).mean(axis=1) == 1
    middle = int(np.flatnonzero(wide).mean())
    found = [
        (box[0].start > middle, name, form_of(picture, box, colour))
        for name, colour in COLOURS.items()
        for box in parts(picture, colour)
    ]

    def count(lower: bool, *words: str) -> int:
        return sum(one[0] == lower and set(words) <= set(one) for one in found)

    colours, forms = list(COLOURS), ["circle", "square", "triangle"]
    both = [("red", "circle"), ("blue", "square"), ("green", "triangle")]
    upper = [count(False, word) for word in (*colours, *forms)]
    return upper + [count(True, word) for word in colours] + [count(True, *words) for words in both]


def measured(picture: Pixels) -> list[int]:
    """What M03 asks for: heights against the scale between the black base line and the topmost grey line."""
    grey = np.flatnonzero((picture[:, 500:] == (190, 190, 190)).all(axis=2).mean(axis=1) > 0.3)
    black = np.flatnonzero((picture == 0).all(axis=2).mean(axis=1) > 0.8)
    split = int(black[0]) + 10
    charts = [(grey[grey < split].min() + 1, black[black < split].mean())]
    charts.append((grey[grey > split].min() + 1, black[black > split].mean()))

    def heights(colour: tuple[int, int, int], chart: int) -> list[int]:
        top, bottom = charts[chart]
        boxes = [box for box in parts(picture, colour) if (box[0].start < split) == (chart == 0)]
        bars = [box for box in boxes if abs(box[0].stop - bottom) < 12]
        return [10 * round(10 * (bottom - box[0].start) / (bottom - top)) for box in bars]

    upper, north, south = heights(TEAL, 0), heights(BLUE, 1), heights(ORANGE, 1)
    return [*upper, *north, sum(south), south[north.index(max(north))]]


def code_in(data: bytes) -> str:
    """The code of a picture of the blind check: letter by letter the one that, drawn, gives these pixels."""
    stamps = _stamps()
    return "".join(min(stamps, key=lambda symbol: _distance(stamps[symbol], ink)) for ink in _ink(opened(data)))


@cache
def _stamps() -> dict[str, Pixels]:
    return {symbol: _ink(opened(vision.picture_of(symbol)))[0] for symbol in vision.SYMBOLS}


def _ink(picture: Pixels) -> list[Pixels]:
    dark = picture.sum(axis=2) < 384
    columns, _ = ndimage.label(dark.any(axis=0))
    pieces = [dark[:, box[0]] for box in ndimage.find_objects(columns)]
    return [piece[piece.any(axis=1)] for piece in pieces]


def _distance(one: Pixels, other: Pixels) -> float:
    if abs(one.shape[0] - other.shape[0]) > 3 or abs(one.shape[1] - other.shape[1]) > 3:
        return np.inf
    rows, columns = min(one.shape[0], other.shape[0]), min(one.shape[1], other.shape[1])
    return float((one[:rows, :columns] != other[:rows, :columns]).sum())


def answer(text: str, images: list[bytes]) -> str:
    """What one who sees says to a prompt with pictures; one without any is small talk."""
    if not images:
        return "one two"
    if vision.QUESTION in text:
        return code_in(images[0])
    look: Mapping[str, Callable[[Pixels], list[int]]] = {"thick black line": counted, "bar charts": measured}
    see = next((see for words, see in look.items() if words in text), None)
    figures = see(opened(images[0])) if see else []
    keys = re.findall(r"^ANSWER (\w+):", text, re.MULTILINE)
    return "\n".join(f"ANSWER {key}: {figure}" for key, figure in zip(keys, figures, strict=False)) or "I cannot say."


@dataclass
class Painter:
    """The server's side of a conversation.

    ``says`` is what answers; ``bare_only``: pictures are taken as a bare string only, with HTTP 400 for the object.
    """

    says: Callable[[str, list[bytes]], str] = answer
    bare_only: bool = False
    seen: list[str] = field(default_factory=list)
    """SHA-256 of the pixels of every picture that arrived."""

    def ollama(self, capabilities: list[str] | None) -> dict[str, Script]:
        show: dict[str, Any] = {"template": "{{ .Messages }}", "model_info": {"toy.context_length": 32768}}
        if capabilities is not None:
            show["capabilities"] = capabilities
        entry = {"name": "toy:1b", "model": "toy:1b", "digest": "d1"}
        return {
            "/api/version": js({"version": "0.9.3"}),
            "/api/show": js(show),
            "/api/tags": js({"models": [entry]}),
            "/api/ps": js({"models": [entry]}),
            "/api/chat": self._ollama_chat,
        }

    def _ollama_chat(self, seen: Seen) -> Say:
        if not seen.body["messages"]:
            return js({"model": "toy:1b", "done": True, "done_reason": "load"})
        last = seen.body["messages"][-1]
        images = [base64.b64decode(image, validate=True) for image in last.get("images", [])]
        said = self._say(last["content"], images)
        return ndjson(ollama_says(said), {**OLLAMA_DONE, "prompt_eval_count": 2000})

    def openai(self, **also: Script) -> dict[str, Script]:
        return {
            "/v1/models": js({"data": [{"id": "toy", "max_model_len": 32768}]}),
            "/v1/chat/completions": self._openai_chat,
            **also,
        }

    def _openai_chat(self, seen: Seen) -> Say:
        if seen.body["model"] != "toy":
            return js({"error": {"message": "model not found"}}, 404)
        content = seen.body["messages"][-1]["content"]
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        urls = [part["image_url"] for part in content if part["type"] == "image_url"]
        if self.bare_only and any(not isinstance(url, str) for url in urls):
            return js({"error": {"message": "cannot unmarshal object into field image_url of type string"}}, 400)
        texts = [url if isinstance(url, str) else url["url"] for url in urls]
        assert all(text.startswith(PREFIX) for text in texts)
        images = [base64.b64decode(text.removeprefix(PREFIX), validate=True) for text in texts]
        said = self._say("".join(part["text"] for part in content if part["type"] == "text"), images)
        return sse(chunk(said), chunk(finish="stop"), usage(prompt_tokens=2000))

    def _say(self, text: str, images: list[bytes]) -> str:
        self.seen += map(pixels, images)
        return self.says(text, images)
