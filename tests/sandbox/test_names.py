"""File names that a model chose."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandbox.confined import fieldcase

from pytest_llmbench.sandbox.names import UnsafeName, listed, plain_parts, safe_path

CASE = fieldcase("78")
NAMES = [name for name in (CASE / "names.txt").read_text(encoding="utf-8").split("\n") if name]
ACCEPTED = json.loads((CASE / "expected.json").read_text(encoding="utf-8"))["accept"]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_fieldcase_78_names_on_a_list(name: str) -> None:
    if name in ACCEPTED:
        assert listed(name, ["solution.py"]) == "solution.py"
        return
    with pytest.raises(UnsafeName) as unsafe:
        listed(name, ["solution.py"])
    assert (unsafe.value.reason == "case mismatch") == (name == "Solution.py")


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_fieldcase_78_names_in_a_workdir(name: str, tmp_path: Path) -> None:
    workdir = tmp_path / "work"
    workdir.mkdir()
    (tmp_path / "work-evil").mkdir()
    (workdir / "solution.py").write_text("", encoding="utf-8")
    (workdir / "link").symlink_to(tmp_path / "work-evil")
    if name in ACCEPTED:
        assert safe_path(workdir, name) == workdir / "solution.py"
    else:
        with pytest.raises(UnsafeName):
            safe_path(workdir, name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "no name"),
        (".", "names no file"),
        ("a//b", "names no file"),
        ("a/", "names no file"),
        ("~/x", "not relative"),
        ("a/../../b", "leaves the work directory"),
        ("c:x", "drive letter"),
        ("a\x00b", "control character"),
        ("a\nb", "control character"),
        ("\ud800", "control character"),
        ("ab?c", "not every system"),
        ("con", "reserved"),
        ("sub/NUL.txt", "reserved"),
        ("lpt1", "reserved"),
        ("COM\u00b9.py", "reserved"),
        ("a.", "reserved"),
        ("a ", "reserved"),
        ("x" * 256, "too long"),
        ("/".join(["x" * 200] * 6), "too long"),
    ],
    ids=ascii,
)
def test_a_name_is_refused_with_its_reason(name: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(UnsafeName, match=reason):
        safe_path(tmp_path, name)


@pytest.mark.parametrize("name", ["a.py", "./a.py", "sub/dir/a.py", ".hidden", "a b.txt", "naïve.py", "console.py"])
def test_an_ordinary_name_is_accepted(name: str, tmp_path: Path) -> None:
    assert safe_path(tmp_path, name) == tmp_path / name


def test_what_lies_in_the_workdir_already_is_taken_into_account(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("", encoding="utf-8")
    (tmp_path / "Sub").mkdir()
    (tmp_path / "broken").symlink_to("nowhere")
    for name, reason in (
        ("readme.md", "collides"),
        ("sub/a.py", "collides"),
        ("Sub", "no regular file"),
        ("README.md/a.py", "below a file"),
        ("broken", "link"),
        ("broken/a", "link"),
    ):
        with pytest.raises(UnsafeName, match=reason):
            safe_path(tmp_path, name)
    assert safe_path(tmp_path, "Sub/a.py") == tmp_path / "Sub/a.py"


@given(st.text(max_size=30) | st.text(alphabet="./\\ab~:\u202e\0", max_size=12))
def test_an_accepted_name_stays_inside(name: str) -> None:
    try:
        parts = plain_parts(name)
    except UnsafeName:
        return
    path = Path("/work").joinpath(*parts)
    assert path.resolve().is_relative_to("/work")
    assert path != Path("/work")


@given(st.text(min_size=1))
def test_the_reason_can_be_shown_anywhere(name: str) -> None:
    with pytest.raises(UnsafeName) as unsafe:
        plain_parts(f"{name}/..")
    assert str(unsafe.value).isascii()
    assert str(unsafe.value).isprintable()
