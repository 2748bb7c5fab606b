"""The bank on disk: finding it, reading specifications, loading an item's own code, checksums and versions."""

from __future__ import annotations

import hashlib
import importlib.util
import random
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, cached_property
from pathlib import Path
from string import Template
from types import ModuleType
from typing import Any, cast

from pydantic import ValidationError

from pytest_llmbench.spec import Instance, ItemSpec, Task

ITEM_FILE = "item.toml"
ITEMS_FILE = "items.toml"
BANK_FILE = "bank.toml"
SIDE_FOLDERS = ("fixtures", "hidden_tests", "mutants")


class BankError(Exception):
    """An item cannot be used: the message names the file, the item and what is wrong."""


@dataclass(frozen=True, eq=False)
class Item:
    """A specification together with the folder that holds its prompt, its code and its references."""

    spec: ItemSpec
    path: Path
    """The ``item.toml`` or ``items.toml`` it was read from."""

    @property
    def folder(self) -> Path:
        return self.path.parent

    @cached_property
    def root(self) -> Path:
        """The folder that holds ``items/`` and its side folders; the item's own folder outside of a bank."""
        for parent in self.path.parents:
            if parent.name == "items":
                return parent.parent
        return self.folder

    @property
    def has_references(self) -> bool:
        """Whether there is a golden delivery that must earn every point."""
        return True

    @cached_property
    def task(self) -> Task:
        """The item's ``task.py``, imported on first use.

        Raises:
            BankError: where it is missing, fails to import or lacks a function.
        """
        module = _import_task(self.folder / "task.py", self.spec.id)
        for name in ("build", "grade", "golden", "defects"):
            if not callable(getattr(module, name, None)):
                raise BankError(f"{self.folder / 'task.py'}: item {self.spec.id} needs a function {name}()")
        return cast("Task", module)

    def build(self, variant: int, run: int) -> Instance:
        """The instance for ``variant`` (0 is the published one) and ``run`` (from 1); the same for every model."""
        seed = random.Random(f"{self.spec.id}/{variant}/{run}")
        return self.task.build(self, variant, run, seed)

    def render(self, **values: object) -> str:
        """``prompt.md`` with every ``$name`` filled in.

        Raises:
            BankError: where a name has no value.
        """
        text = (self.folder / "prompt.md").read_text(encoding="utf-8")
        try:
            return Template(text).substitute({name: str(value) for name, value in values.items()}).strip()
        except (KeyError, ValueError) as error:
            raise BankError(f"{self.folder / 'prompt.md'}: placeholder {error} of item {self.spec.id}") from error

    def read(self, name: str, **values: object) -> str:
        """A text file beside the item, such as a golden delivery; filled in like the prompt where values are given."""
        text = (self.folder / name).read_text(encoding="utf-8")
        return Template(text).substitute({key: str(value) for key, value in values.items()}) if values else text

    def side(self, name: str) -> Path:
        """The item's folder below ``fixtures``, ``hidden_tests`` or ``mutants``."""
        return self.root / name / (self.spec.group or self.spec.id).lower()

    @cached_property
    def checksum(self) -> str:
        """SHA-256 over everything that makes up the item: its folder and its side folders."""
        tops = (self.folder, *map(self.side, SIDE_FOLDERS))
        found = (path for top in tops for path in sorted(top.rglob("*")))
        files = [(path, path.stat()) for path in found if path.is_file() and "__pycache__" not in path.parts]
        return _digest(self.root, tuple((path, state.st_mtime_ns, state.st_size) for path, state in files))


@cache
def _digest(root: Path, files: tuple[tuple[Path, int, int], ...]) -> str:
    """SHA-256 over files; hundreds of items can share them. Time and size tell that a file is still the same."""
    digest = hashlib.sha256()
    for path, _, _ in files:
        digest.update(path.relative_to(root).as_posix().encode() + b"\0")
        digest.update(path.read_bytes().replace(b"\r\n", b"\n") + b"\0")
    return digest.hexdigest()


def _import_task(path: Path, item_id: str) -> ModuleType:
    name = f"llmbench_task_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    location = importlib.util.spec_from_file_location(name, path)
    if location is None or location.loader is None or not path.is_file():
        raise BankError(f"{path}: item {item_id} has no task.py")
    module = importlib.util.module_from_spec(location)
    sys.modules[name] = module
    try:
        location.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise BankError(f"{path}: item {item_id}: {type(error).__name__}: {error}") from error
    return module


def read_items(path: Path) -> list[Item]:
    """The items of one ``item.toml`` or ``items.toml``, in the file's order.

    Raises:
        BankError: naming the file, the item and the field.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BankError(f"{path}: cannot be read: {error}") from error
    entries: list[Mapping[str, Any]]
    entries = _entries(path, document) if path.name == ITEMS_FILE else [document]
    items = [Item(spec_of(path, entry, number), path) for number, entry in enumerate(entries, 1)]
    check_unique(items)
    return items


def _entries(path: Path, document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if unknown := sorted(set(document) - {"defaults", "items"}):
        raise BankError(f"{path}: unknown key {', '.join(unknown)}; an {ITEMS_FILE} has [defaults] and [[items]]")
    entries, defaults = document.get("items"), document.get("defaults", {})
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise BankError(f"{path}: needs at least one [[items]] entry")
    if not isinstance(defaults, dict):
        raise BankError(f"{path}: defaults must be a table")
    return [{**defaults, **entry} for entry in entries]


def spec_of(path: Path, entry: Mapping[str, Any], number: int = 1) -> ItemSpec:
    """The specification in entry ``number`` of a file.

    Raises:
        BankError: naming the file, the item and the field.
    """
    try:
        return ItemSpec.model_validate(entry)
    except ValidationError as error:
        name = entry.get("id", f"number {number}")
        faults = "; ".join(
            f"{'.'.join(str(part) for part in fault['loc']) or 'item'}: {fault['msg'].removeprefix('Value error, ')}"
            for fault in error.errors()
        )
        raise BankError(f"{path}: item {name}: {faults}") from None


def check_unique(items: Iterable[Item]) -> None:
    """Raise BankError where two items share an id, naming both files."""
    seen: dict[str, Path] = {}
    for item in items:
        if item.spec.id in seen:
            raise BankError(f"{item.path}: item id {item.spec.id} is already used in {seen[item.spec.id]}")
        seen[item.spec.id] = item.path


def item_files(top: Path) -> Iterator[Path]:
    """Every specification file below ``top``, sorted."""
    yield from sorted(path for name in (ITEM_FILE, ITEMS_FILE) for path in top.rglob(name))


def packaged_bank() -> Path:
    """The bank that comes with the plugin: inside the wheel, or beside the package in a checkout."""
    here = Path(__file__).resolve().parent
    inside = here / "bank" / "items"
    return inside if inside.is_dir() else here.parent / "items"


def find_bank(folder: Path) -> Path:
    """``folder/items`` where that holds items, else the packaged bank."""
    own = folder / "items"
    return own if own.is_dir() and next(item_files(own), None) is not None else packaged_bank()


def bank_around(path: Path) -> Path | None:
    """The bank that a path given to pytest belongs to, or that lies below it; None where there is no item.

    The innermost folder with a ``bank.toml`` or of the name ``items`` is the bank; where there is none, ``items`` in
    the folder itself, or else the folder.
    """
    top = path if path.is_dir() else path.parent
    for folder in (top, *top.parents):
        if (folder / BANK_FILE).is_file() or folder.name == "items":
            return folder if next(item_files(folder), None) is not None else None
    if path.suffix == ".py":
        return None
    own = top / "items"
    return next((folder for folder in (own, top) if next(item_files(folder), None) is not None), None)


def load_bank(top: Path) -> list[Item]:
    """All items below ``top``, in path order.

    Raises:
        BankError: for a broken specification or an id that is used twice.
    """
    items = [item for path in item_files(top) for item in read_items(path)]
    check_unique(items)
    return items


def bank_checksum(items: Iterable[Item]) -> str:
    """SHA-256 over the checksums of all items."""
    lines = sorted(f"{item.spec.id} {item.spec.version} {item.checksum}" for item in items)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
