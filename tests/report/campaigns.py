"""Run folders of campaigns that nobody ran: records and conversations made from a seed."""

from __future__ import annotations

import base64
import random
import re
import zlib
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path

from pytest_llmbench.bank import load_bank, packaged_bank
from pytest_llmbench.records import (
    AgentRecord,
    CapUse,
    FaultRecord,
    Fingerprints,
    Record,
    Row,
    Speed,
    Step,
    TokenUse,
    Transcript,
    Turn,
)
from pytest_llmbench.report.build import Manifest, Plan, PlannedItem, card_name, write_report
from pytest_llmbench.spec import ItemSpec, Level
from pytest_llmbench.store.folder import ENVIRONMENT, MANIFEST, PLAN, RunFolder, node_stem

TEXT = """
the ledger holds a row for every order and the total of it is rounded after tax so a reader checks sums first
then writes def settle(entries): return sum(entry.amount for entry in entries) and counts them again with care
"""
WORDS = TEXT.split()
TIME = "2030-01-01T00:00:00.000+00:00"
SHA = "0" * 64

Say = Callable[[random.Random, int], str]
"""What a model says, in about so many characters."""


def prose(chance: random.Random, chars: int) -> str:
    """Words in lines, as a model would write them."""
    words = chance.choices(WORDS, k=chars // 5)
    return "\n".join(" ".join(words[at : at + 14]) for at in range(0, len(words), 14))


def refs(models: int) -> list[str]:
    families = ("qwen3", "gemma3", "granite4", "hf.co/bartowski/Llama-3.2-3B-Instruct-GGUF")
    return [f"{families[number % len(families)]}:{number + 1}b" for number in range(models)]


def campaign(
    path: Path,
    models: int | Sequence[str] = 3,
    runs: int = 2,
    *,
    say: Say = prose,
    chars: int = 6_000,
    profile: str = "standard",
    unmeasured: bool = False,
    levels: Sequence[Level] = ("A",),
    seed: int = 1,
) -> RunFolder:
    """A run folder of ``models`` (a number or their refs) × ``runs`` of the packaged bank, with its report.

    Args:
        say: what models write.
        chars: about how much of it there is in a conversation.
        unmeasured: let one node end without a score.
        levels: the bank is made to stand in each of these levels, with other item names in all but the first.
    """
    chance = random.Random(seed)
    names = refs(models) if isinstance(models, int) else list(models)
    folder = RunFolder(path)
    bank = [
        (f"{level}{item.spec.id[1:]}", level, item.spec)
        for level in levels
        for item in sorted(load_bank(packaged_bank() / "level_a"), key=lambda item: item.spec.id)
    ]
    folder.write(MANIFEST, _manifest(names, runs, profile))
    folder.write(ENVIRONMENT, {"schema": "llmbench.environment/1", "system": "Linux", "packages": {"pytest": "9.2.0"}})
    planned = {
        name: PlannedItem(
            title=spec.title, version=spec.version, level=level, points=float(spec.points), rows=len(spec.rows)
        )
        for name, level, spec in bank
    }
    nodes = [(name, run, ref) for run in range(1, runs + 1) for ref in names for name, _, _ in bank]
    folder.write(PLAN, Plan(nodes=nodes, items=planned))
    strength = {ref: 0.3 + 0.6 * chance.random() for ref in names}
    for ref in names:
        folder.write(card_name(ref), {"ref": ref, "digest": SHA, "quantisation": "Q4_K_M", "notes": []})
    for name, level, spec in bank:
        for run in range(1, runs + 1):
            asked = prose(chance, 4_000)
            for ref in names:
                lost = unmeasured and (name, run, ref) == nodes[-1]
                record = _record(chance, name, level, spec, run, ref, strength[ref], profile, lost)
                folder.write_record(record)
                folder.write(
                    f"transcripts/{node_stem(name, 0, run, ref)}.json",
                    _transcript(chance, record, asked, say, chars),
                )
    write_report(folder)
    return folder


def _manifest(names: Sequence[str], runs: int, profile: str) -> Manifest:
    return Manifest(
        plugin_version="1.0.0",
        harness={"version": "1.0.0", "signature": SHA},
        bank={"version": "1.0.0", "checksum": SHA},
        grader=SHA,
        profile=profile,
        sampling="greedy",
        think=None,
        variant=0,
        runs=runs,
        models=names,
        options={},
        created=TIME,
    )


def _record(
    chance: random.Random,
    name: str,
    level: Level,
    spec: ItemSpec,
    run: int,
    ref: str,
    strength: float,
    profile: str,
    lost: bool,
) -> Record:
    rows = [
        Row(
            id=row.id,
            title=row.title,
            points=row.points,
            earned=row.points if chance.random() < strength else Decimal(0),
            kind=row.kind,
            evidence=prose(chance, 90),
        )
        for row in spec.rows
    ]
    near = chance.random() < 0.05
    agent = AgentRecord(
        end="finish",
        turns=8,
        calls=8,
        spent=4,
        counters={"extra_calls": 1},
        faults=[
            FaultRecord(call=3, kind="timeout", tool="read_file", fired_at=4),
            FaultRecord(call=9, kind="deceptive", tool=None, fired_at=None),
        ],
    )
    return Record(
        item=name,
        title=spec.title,
        item_version=spec.version,
        level=level,
        mode=spec.mode,
        variant=0,
        run=run,
        ref=ref,
        status="runtime_error" if lost else "measured",
        reason="the server closed the connection" if lost else None,
        points=None if lost else sum((row.earned for row in rows), Decimal(0)),
        points_max=spec.points,
        rows=[] if lost else rows,
        repairs=["answer.py: import re was added"] if spec.runs_code and chance.random() < 0.1 else [],
        confinement="bubblewrap" if spec.runs_code else None,
        stop_reason="stop",
        usage=TokenUse(calls=1, prompt_tokens=900, completion_tokens=1200, elapsed_s=12.5),
        speed=Speed(generation_tokens_per_s=41.5),
        caps={"max_tokens": CapUse(used=21_000 if near else 1_200, cap=24_576, share=0.8545 if near else 0.0488)},
        edge=["max_tokens"] if near else [],
        agent=agent if spec.mode == "agent" else None,
        profile=profile,
        sampling="greedy",
        think=None,
        fingerprints=Fingerprints(request=SHA, parts={"model": SHA}, item=SHA, grader=SHA, harness=SHA, bank=SHA),
        harness_version="1.0.0",
        bank_version="1.0.0",
        started=TIME,
        finished=TIME,
    )


def _transcript(chance: random.Random, record: Record, asked: str, say: Say, chars: int) -> Transcript:
    turns = [Turn(role="system", content="Follow the task exactly."), Turn(role="user", content=asked)]
    replies = record.agent.turns if record.agent else 1
    for number in range(1, replies + 1):
        turns.append(
            Turn(
                role="assistant",
                content=say(chance, chars // replies // 2),
                thinking=say(chance, chars // replies // 4),
                stop_reason="stop",
                usage={"completion_tokens": 150, "elapsed_s": 1.5},
                step=Step(number=number, tool="read_file", fault="timeout" if number == 4 else None, cost=1)
                if record.agent
                else None,
            )
        )
        if record.agent:
            turns.append(Turn(role="user", content=say(chance, chars // replies // 4)))
    return Transcript(
        item=record.item,
        variant=0,
        run=record.run,
        ref=record.ref,
        turns=turns,
        end="finish" if record.agent else None,
        max_tokens=24_576,
        context=32_768,
        seed=11,
        fingerprints={},
        started=TIME,
        finished=TIME,
    )


SPOKEN = re.compile(r"<section id=\"([^\"]+)\" class=\"page\"><script type=\"text/plain\">([^<]*)</script></section>")


def nodes_shown(html: str) -> dict[str, str]:
    """The packed pages of the nodes, unpacked, by name."""
    return {name: zlib.decompress(base64.b64decode(packed)).decode() for name, packed in SPOKEN.findall(html)}
