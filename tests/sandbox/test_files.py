"""Folders that a hostile program wrote to: collected, measured and removed."""

from __future__ import annotations

import os
import socket
import stat
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sandbox.jails import open_folder

from pytest_llmbench.sandbox.collect import Caps, collect
from pytest_llmbench.sandbox.files import Meter, give, remove_tree, walk

CAPS = Caps(file_bytes=1_000, total_bytes=2_500, files=10, depth=3)


@pytest.fixture
def workdir() -> Iterator[Path]:
    with open_folder() as folder:
        (folder / "outside").write_text("outside", encoding="utf-8")
        (folder / "workdir").mkdir()
        yield folder / "workdir"


def put(workdir: Path, **files: bytes) -> None:
    for name, content in files.items():
        (workdir / name).write_bytes(content)


def nested(top: Path, levels: int) -> None:
    descriptor = os.open(top, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=descriptor)
        inner = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(os.open("end", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
    os.close(descriptor)


def test_regular_files_are_collected_with_their_bytes(workdir: Path) -> None:
    (workdir / "a/b").mkdir(parents=True)
    put(workdir, one=b"1\xff\r\n", two=b"")
    put(workdir / "a/b", three=b"3")
    assert collect(workdir, None, CAPS).files == {"one": b"1\xff\r\n", "two": b"", "a/b/three": b"3"}
    wanted = collect(workdir, ["a/b/three", "missing"], CAPS)
    assert (wanted.files, wanted.refused) == ({"a/b/three": b"3"}, {})


def test_what_is_no_regular_file_of_its_own_is_refused(workdir: Path) -> None:
    outside = workdir.parent / "outside"
    (workdir / "link").symlink_to(outside)
    (workdir / "folder").symlink_to(workdir.parent)
    (workdir / "loop").symlink_to("loop")
    (workdir / "hard").hardlink_to(outside)
    os.mkfifo(workdir / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(workdir / "socket"))
    collected = collect(workdir, None, CAPS)
    assert collected.files == {}
    assert collected.refused == {
        "folder": "no regular file",
        "hard": "has a second name",
        "link": "no regular file",
        "loop": "no regular file",
        "pipe": "no regular file",
        "socket": "no regular file",
    }
    assert collect(workdir, ["folder/outside"], CAPS).files == {}


def test_a_folder_in_the_place_of_a_wanted_file_is_refused(workdir: Path) -> None:
    (workdir / "out.txt").mkdir()
    assert collect(workdir, ["out.txt"], CAPS).refused == {"out.txt": "no regular file"}


def test_a_link_in_the_place_of_the_workdir_is_not_followed(workdir: Path) -> None:
    workdir.rmdir()
    workdir.symlink_to(workdir.parent)
    collected = collect(workdir, None, CAPS)
    assert collected.files == {}
    assert "cannot be read" in collected.refused["."]


def test_caps_refuse_and_never_cut(workdir: Path) -> None:
    put(workdir, a=b"x" * 1_000, b=b"x" * 1_001, c=b"x" * 1_000, d=b"x" * 501, e=b"x" * 500)
    with (workdir / "sparse").open("wb") as file:
        file.truncate(2**43)
    collected = collect(workdir, None, CAPS)
    assert {name: len(content) for name, content in collected.files.items()} == {"a": 1_000, "c": 1_000, "e": 500}
    assert collected.refused == {
        "b": "more than 1000 bytes",
        "d": "more than 500 bytes",
        "sparse": "more than 0 bytes",
    }
    many = collect(workdir, None, replace(CAPS, files=2))
    assert list(many.files) == ["a", "c"]
    assert many.refused["d"] == "more than 2 files"


def test_what_lies_too_deep_is_refused(workdir: Path) -> None:
    nested(workdir, 3_000)
    collected = collect(workdir, None, CAPS)
    assert collected.files == {}
    assert collected.refused == {"d/d/d/d": "folder is deep"}


def test_names_that_are_unsafe_are_refused_in_readable_form(workdir: Path) -> None:
    for name in (b"a\nb", b"\xff", "\u202etxt".encode(), b"aux", b"a\\b"):
        (workdir / os.fsdecode(name)).write_bytes(b"x")
    collected = collect(workdir, None, CAPS)
    assert collected.files == {}
    assert len(collected.refused) == 5
    assert all(name.isascii() and name.isprintable() for name in collected.refused)


def test_a_walk_names_parents_first_and_follows_nothing(workdir: Path) -> None:
    (workdir / "a/b").mkdir(parents=True)
    (workdir / "a/up").symlink_to("..")
    put(workdir, z=b"")
    assert [(entry.path, entry.depth) for entry in walk(workdir)] == [("a", 1), ("a/b", 2), ("a/up", 2), ("z", 1)]


def test_disk_use_counts_files_folders_and_links(workdir: Path) -> None:
    (workdir / "a").mkdir()
    (workdir / "a/link").symlink_to("/")
    put(workdir / "a", big=b"x" * 2**20)
    meter = Meter((workdir,))
    size, files = meter.measure(100)
    assert size >= 2**20
    assert files == 3
    assert meter.measure(1)[1] == 2


def test_folders_too_deep_to_be_measured_count_as_too_many_files(workdir: Path) -> None:
    nested(workdir, 3_000)
    assert Meter((workdir,)).measure(5_000)[1] == 5_001


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read every folder")
def test_a_folder_that_stays_unreadable_is_opened(workdir: Path) -> None:
    (workdir / "a").mkdir()
    put(workdir / "a", hidden=b"")
    (workdir / "a").chmod(0)
    meter = Meter((workdir,))
    assert [meter.measure(100)[1] for _ in range(3)] == [1, 1, 2]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_files_are_given_away_but_not_those_with_a_name_outside(workdir: Path) -> None:
    (workdir / "a").mkdir()
    put(workdir / "a", own=b"")
    (workdir / "hard").hardlink_to(workdir.parent / "outside")
    (workdir / "link").symlink_to(workdir.parent / "outside")
    give(workdir, 54_321)
    owners = {path.name: path.lstat().st_uid for path in [workdir, *workdir.rglob("*")]}
    assert owners == {"workdir": 54_321, "a": 54_321, "own": 54_321, "link": 54_321, "hard": 0}
    assert (workdir.parent / "outside").stat().st_uid == 0


def test_anything_is_removed(workdir: Path) -> None:
    nested(workdir, 3_000)
    assert sys.getrecursionlimit() < 3_000
    for name in (b"a\nb", b"\xff\xfe", b"-rf", b"x" * 255):
        (workdir / os.fsdecode(name)).mkdir()
    (workdir / "link").symlink_to(workdir.parent)
    os.mkfifo(workdir / "pipe")
    (workdir / "locked/in").mkdir(parents=True)
    put(workdir / "locked", file=b"")
    for path in ("locked/in", "locked/file", "locked", "."):
        (workdir / path).chmod(0)
    remove_tree(workdir)
    assert not workdir.exists()
    assert (workdir.parent / "outside").exists()


def test_removing_nothing_a_file_or_a_link_touches_nothing_else(workdir: Path) -> None:
    link = workdir.parent / "link"
    link.symlink_to(workdir)
    remove_tree(link)
    remove_tree(workdir.parent / "missing")
    remove_tree(workdir.parent / "outside")
    assert list(workdir.parent.iterdir()) == [workdir]


def test_modes_outside_stay_when_a_tree_with_links_is_removed(workdir: Path) -> None:
    outside = workdir.parent / "folder"
    outside.mkdir(mode=0o751)
    outside.chmod(0o751)
    (workdir / "link").symlink_to(outside)
    remove_tree(workdir)
    assert stat.S_IMODE(outside.stat().st_mode) == 0o751
