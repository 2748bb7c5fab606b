"""Pictures for items: drawn with Pillow and the font that it brings along, the same pixels on every machine.

Pillow is imported when the first picture is drawn. Another version of it may draw a letter differently; the test card
finds that out, and then there is no picture at all instead of another one.
"""

from __future__ import annotations

import hashlib
import io
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_llmbench.bank import Item
from pytest_llmbench.spec import Instance, Unavailable

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont

SIDE = 896
"""Width and height of a picture: what common vision models scale a square to, or a multiple of their tiles."""
DRAWN_WITH = "13.0.0"
"""Version of Pillow that the pixels are pinned to."""
TEST_CARD = "e984b306173b96ddee7975ec85dc436daffb480a51220095a99eab7297b0a131"
"""SHA-256 of the test card's pixels."""
CARD_SIZES = (20, 28, 34, 48, 72)
CARD_TEXT = "AVTo 0123456789 ABCDEFGHIJKLMNOPQRSTUVWXYZ"
CARD_LINE = 60
"""Height of a line of the test card, in pixels."""
INSTALL = f"pip install pillow=={DRAWN_WITH}"

Colour = str | tuple[int, int, int]
Point = tuple[float, float]


def canvas(width: int = SIDE, height: int = SIDE) -> tuple[Image, ImageDraw]:
    """An empty white picture and the pen for it.

    Raises:
        Unavailable: Pillow is not installed, or draws other pixels than the pinned ones.
    """
    _check()
    return _canvas(width, height)


def _canvas(width: int, height: int) -> tuple[Image, ImageDraw]:
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (width, height), "white")
    return image, ImageDraw.Draw(image)


@cache
def font(size: int) -> FreeTypeFont:
    """Pillow's own font, laid out without the system's text libraries.

    Raises:
        Unavailable: Pillow was built without FreeType.
    """
    from PIL import ImageFont

    found = ImageFont.load_default(size)
    if not isinstance(found, ImageFont.FreeTypeFont):
        raise Unavailable(f"this Pillow was built without FreeType and has no letters of its own; {INSTALL}")
    return found.font_variant(layout_engine=ImageFont.Layout.BASIC)


def write(pen: ImageDraw, at: Point, text: str, size: int, *, colour: Colour = "black", anchor: str = "mm") -> None:
    """Write ``text`` at a point; ``anchor`` as in Pillow, ``mm`` for its middle."""
    pen.text(at, text, fill=colour, font=font(size), anchor=anchor)


def png(image: Image) -> bytes:
    """The picture as a PNG file. Its bytes depend on the machine's compression; its pixels do not."""
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def pixels(picture: bytes) -> str:
    """SHA-256 of a PNG file's size and pixels."""
    from PIL import Image

    with Image.open(io.BytesIO(picture)) as image:
        return _digest(image.convert("RGB"))


def pinned(pins: Path, variant: int, run: int, image: Image) -> bytes:
    """The picture as a PNG file, once its pixels are the pinned ones.

    Args:
        pins: TOML file with the SHA-256 of the published pictures by run; those of other variants have none.
        variant: of the instance.
        run: of the instance.
        image: what was drawn.

    Raises:
        Unavailable: it is another picture than the published one.
    """
    known = tomllib.loads(pins.read_text(encoding="utf-8")) if variant == 0 and pins.is_file() else {}
    if known.get(f"run{run}", found := _digest(image)) != found:
        raise Unavailable(f"the picture of run {run} is not the published one ({pins.name}); {INSTALL}")
    return png(image)


def pictured(
    item: Item,
    variant: int,
    run: int,
    image: Image,
    drawn: object,
    answers: Mapping[str, int] | None = None,
    **slots: object,
) -> Instance:
    """The instance of an item that asks about one picture.

    Args:
        item: whose published pictures are pinned in ``pixels.toml`` of its fixtures.
        variant: of the instance.
        run: of the instance.
        image: what was drawn.
        drawn: what it was drawn from; the item's own code finds it as ``data["drawn"]``.
        answers: the expected ones, known before drawing.
        slots: what fills the places of the prompt.

    Raises:
        Unavailable: it is another picture than the published one.
    """
    picture = pinned(item.side("fixtures") / "pixels.toml", variant, run, image)
    prompt = item.render(**slots)
    return Instance(item.spec, variant, run, prompt, answers=answers or {}, data={"drawn": drawn}, images=(picture,))


def _digest(image: Image) -> str:
    return hashlib.sha256(f"{image.width}x{image.height} ".encode() + image.tobytes()).hexdigest()


def card_pixels() -> str:
    """SHA-256 of the pixels of letters in every size, a line, a circle, a box and a triangle."""
    image, pen = _canvas(SIDE, SIDE)
    for line, size in enumerate(CARD_SIZES):
        write(pen, (0, CARD_LINE * (line + 1)), CARD_TEXT, size, anchor="lm")
    low, high = SIDE // 2, SIDE - CARD_LINE
    pen.line((low, low, high, high - CARD_LINE), fill="red", width=8)
    pen.ellipse((low, low, high, high), outline="blue", width=6)
    pen.rectangle((CARD_LINE, low, low, high), fill="green", outline="black", width=4)
    pen.polygon([(CARD_LINE, low), (low, high), (low, low)], fill="orange")
    return _digest(image)


@cache
def _check() -> None:
    try:
        import PIL
    except ImportError:
        raise Unavailable(
            f"the pictures of this item are drawn with Pillow, which is not installed; {INSTALL}"
        ) from None
    if card_pixels() != TEST_CARD:
        raise Unavailable(
            f"Pillow {PIL.__version__} draws other pixels than Pillow {DRAWN_WITH}, which the pictures are pinned to; "
            f"{INSTALL}"
        )
