"""Every attack runs in every layer that the machine offers; what it did is looked for outside."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from sandbox.confined import stored
from sandbox.jails import LAYERS, LIMITS, SECRET, attack_files, driver, knocking, sandbox_of, world

from pytest_llmbench.sandbox.collect import Caps, collect
from pytest_llmbench.sandbox.jail import Profile

ATTACKS = {name.removesuffix(".py"): source for name, source in stored(Path(__file__).parent / "attacks").items()}
CAPS = Caps(file_bytes=2**20, total_bytes=2**22, files=50)

ENDED_BY: dict[str, set[str | None]] = {
    "a20_cpu_spin": {"cpu_s"},
    "a21_wall_sleep": {"wall_s"},
    "a23_mem_many_procs": {"memory_bytes"},
    "a26_thread_bomb": {None, "processes"},
    "a29_many_inodes": {"files"},
    "own_deep_folders": {"files"},
    "own_fork_bomb": {"cpu_s", "processes"},
    "own_disk_many_files": {"disk_bytes"},
    "own_disk_deleted_files": {"disk_bytes"},
    "own_disk_mapped_files": {"disk_bytes"},
    "own_disk_in_unreadable_folder": {"disk_bytes"},
    "own_output_flood": {"output_bytes"},
    "own_errors_flood": {"output_bytes"},
    "own_cpu_in_threads": {"cpu_s"},
    "own_cpu_in_short_children": {"cpu_s"},
    "own_silent_and_alive": {"wall_s"},
    "own_limits_lifted_then_spin": {"cpu_s"},
}
"""The limits that may end an attack; None: it may come to its own end."""
SURVIVORS = {"a32_daemonize": 1, "a33_hold_pipe": 1, "own_hold_the_supervisor": 3}
"""Processes that an attack leaves behind when it ends by itself."""
NEED_PROCESSES = {"a23_mem_many_procs", "own_fork_bomb", "own_cpu_in_short_children", *SURVIVORS}
"""Attacks that are nothing where no process can be made."""
NEED_NO_PROCESSES = {"own_new_process_by_any_call"}
OTHER_LIMITS = {
    "a21_wall_sleep": replace(LIMITS, cpu_s=0.5, wall_s=2),
    "own_silent_and_alive": replace(LIMITS, cpu_s=0.5, wall_s=2),
    "a23_mem_many_procs": replace(LIMITS, cpu_s=5, wall_s=20),
    "own_memory_of_one": replace(LIMITS, cpu_s=5, wall_s=20),
}
NO_RESIDUAL = {"bubblewrap"}
"""Layers with a view of files of their own: what is outside is not there."""


def profiles(name: str) -> list[Profile]:
    if name in NEED_PROCESSES:
        return ["tool"]
    return ["pure"] if name in NEED_NO_PROCESSES or name in ENDED_BY else ["pure", "tool"]


CASES = [(name, profile) for name in sorted(ATTACKS) for profile in profiles(name)]


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize(("name", "profile"), CASES, ids=[f"{name}-{profile}" for name, profile in CASES])
def test_an_attack_is_contained(name: str, profile: Profile, layer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMBENCH_SECRET", SECRET)
    with world() as around, driver() as program:
        sandbox = sandbox_of(layer, around.top / "work")
        with sandbox.workdir(attack_files(ATTACKS[name], around.facts)) as workdir:
            with knocking(around.facts["bindport"]) as answered:
                ending = sandbox.run(program, ["attack.py"], workdir, profile=profile, limits=OTHER_LIMITS.get(name))
            delivered = collect(workdir, {"out.txt"}, CAPS)
        said = ending.output.decode(errors="replace")
        assert said.startswith("the jail is up"), ending
        assert answered == []
        assert SECRET.encode() not in b"".join(delivered.files.values())
        if name == "a49_stat_outside" and layer not in NO_RESIDUAL:
            assert any("size and times" in words for words in sandbox.open)
        else:
            assert "PWNED" not in said
        assert around.damage() == []
        assert ending.limit in ENDED_BY.get(name, {None}), ending
        assert ending.left_processes == SURVIVORS.get(name, 0)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("a08_symlink_out", "no regular file"), ("a17_fifo_out", "no regular file"), ("a30_sparse", None)],
)
@pytest.mark.parametrize("layer", LAYERS)
def test_a_poisoned_deliverable_is_refused(name: str, reason: str | None, layer: str) -> None:
    with world() as around, driver() as program:
        sandbox = sandbox_of(layer, around.top / "work")
        with sandbox.workdir(attack_files(ATTACKS[name], around.facts)) as workdir:
            sandbox.run(program, ["attack.py"], workdir)
            delivered = collect(workdir, {"out.txt"}, CAPS)
    assert delivered.refused.get("out.txt") == reason
    assert delivered.files.get("out.txt", b"") == b""


@pytest.mark.parametrize("name", ["a01_read_golden", "a40_tcp", "a47_truncate", "own_signal_runner"])
def test_the_same_attack_succeeds_without_confinement(name: str) -> None:
    """What proves that the tests above can fail."""
    with world() as around, driver() as program:
        sandbox = replace(sandbox_of(LAYERS[1], around.top / "work"), layer="unconfined")
        with sandbox.workdir(attack_files(ATTACKS[name], around.facts)) as workdir:
            ending = sandbox.run(program, ["attack.py"], workdir)
        assert b"PWNED" in ending.output or around.damage()
