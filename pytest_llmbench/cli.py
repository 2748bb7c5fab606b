"""``llmbench``: what needs no pytest."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path

from tabulate import tabulate

from pytest_llmbench.bank import BankError, Item, bank_checksum, find_bank, load_bank
from pytest_llmbench.campaign.measure import grader
from pytest_llmbench.campaign.validate import RUNS, Finding, score_references
from pytest_llmbench.doctor import examine, tell
from pytest_llmbench.harness.frozen import SIGNATURES, Profile, harness, signature, signed_versions
from pytest_llmbench.locks import LOCK_FILE, bank_version, released_text, unreleased
from pytest_llmbench.report.archive import Instrument, archived, run_folders, runs_table
from pytest_llmbench.report.build import read_plan, write_report
from pytest_llmbench.report.markdown import markdown
from pytest_llmbench.report.page import write_page
from pytest_llmbench.report.show import show
from pytest_llmbench.report.tables import summary
from pytest_llmbench.sandbox.jail import Sandbox, Unconfinable
from pytest_llmbench.sandbox.layers import choose
from pytest_llmbench.schemas import SCHEMAS, schema
from pytest_llmbench.spec import Unavailable
from pytest_llmbench.store.events import event_table
from pytest_llmbench.store.folder import RunFolder, StoreError, node_stem
from pytest_llmbench.store.gradings import check_in_place


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 0 done, 1 something is wrong with what was looked at, 2 wrong call."""
    parser = argparse.ArgumentParser(prog="llmbench", description="Tools of pytest-llmbench that need no pytest.")
    commands = parser.add_subparsers(dest="command", required=True)
    validate = commands.add_parser("validate", help="check bank and harness: golden, defective and null references")
    validate.add_argument("--items", type=Path, help="folder of a bank's items (default: ./items or the packaged bank)")
    validate.add_argument(
        "--variants", type=int, default=2, metavar="N", help="variants 0 to N-1, three runs each (default 2)"
    )
    validate.add_argument(
        "--release", action="store_true", help="add new item and harness versions to their lock files"
    )
    commands.add_parser("limits", help="the register of every number that can limit a measurement")
    commands.add_parser("events", help="every type of event that the events.jsonl of a run folder can hold")
    shape = commands.add_parser("schema", help="print a published JSON Schema")
    shape.add_argument("name", nargs="?", default="report", choices=sorted(SCHEMAS))
    report = commands.add_parser("report", help="write report.json of a run folder again, from its records")
    report.add_argument("run", type=Path, help="run folder, or a folder that holds some, which are then listed")
    report.add_argument(
        "--items", type=Path, help="bank that tells current runs from archived ones (as validate has it)"
    )
    report.add_argument("--html", action="store_true", help="write report.html, a page that opens from disk, too")
    report.add_argument("--md", action="store_true", help="print it as Markdown, for a pull request")
    power = commands.add_parser("power", help="how many runs a wanted difference between models needs")
    power.add_argument("run", type=Path, help="run folder with at least two runs per model")
    power.add_argument("difference", type=float, nargs="?", help="in points (default: 1, 2 and 5 %% of the maximum)")
    pair = commands.add_parser("compare", help="what changed between two runs, row by row, and whether it is noise")
    pair.add_argument("run", type=Path)
    pair.add_argument("other", type=Path)
    talk = commands.add_parser("show", help="print the conversation of a node, turn by turn")
    talk.add_argument("run", type=Path, help="run folder")
    talk.add_argument("node", help="name of the node or its beginning, such as A01-run2")
    talk.add_argument("--full", action="store_true", help="print every message in whole")
    again = commands.add_parser("regrade", help="grade the saved replies of a run again, with today's grader; no model")
    again.add_argument("run", type=Path)
    again.add_argument("--items", type=Path, help="folder of the bank's items (default: ./items or the packaged bank)")
    commands.add_parser("fetch-b", help="get the public data that level B measures with, into the user's cache")
    commands.add_parser("doctor", help="what this machine offers to confine code that a model wrote")
    options = parser.parse_args(arguments)
    try:
        if options.command == "validate":
            return _validate(options.items, options.variants, options.release)
        if options.command == "limits":
            print(limits_table())
        elif options.command == "events":
            print(event_table())
        elif options.command == "schema":
            print(json.dumps(schema(options.name), indent=1, sort_keys=True))
        elif options.command == "show":
            print("\n".join(_conversation(RunFolder(options.run), options.node, options.full)))
        elif options.command in ("power", "compare"):
            from pytest_llmbench.report.analysis import compare_text, power_text

            one = options.command == "power"
            for path in (options.run,) if one else (options.run, options.other):
                check_in_place(path)
            print(power_text(options.run, options.difference) if one else compare_text(options.run, options.other))
        elif options.command == "doctor":
            return _doctor()
        elif options.command == "fetch-b":
            return _fetch()
        elif options.command == "regrade":
            from pytest_llmbench.report.regraded import regrade_and_tell

            return regrade_and_tell(options.run, options.items or find_bank(Path.cwd()))
        else:
            _report(options.run, options.items, html=options.html, md=options.md)
    except (BankError, StoreError, Unconfinable) as error:
        print(f"llmbench: {error}", file=sys.stderr)
        return 1
    return 0


def _conversation(folder: RunFolder, name: str, full: bool) -> Iterator[str]:
    """The lines of the one conversation whose node is called so, or begins so."""
    found = {f"{saved.item}-run{saved.run}-{saved.ref}": saved for saved in folder.transcripts()}
    nodes = [name] if name in found else [node for node in found if node.startswith(name)]
    if len(nodes) != 1:
        wanted = f"{len(nodes)} nodes begin so" if nodes else "no node has that name"
        raise StoreError(f"{folder.path}: {name}: {wanted}; there are: {', '.join(nodes or found) or 'none'}")
    saved = found[nodes[0]]
    return show(saved, folder.record(node_stem(saved.item, saved.variant, saved.run, saved.ref)), full=full)


def _report(path: Path, items: Path | None, *, html: bool, md: bool) -> None:
    """Write the report of a run folder again and print it; where the folder only holds run folders, list them."""
    here = Instrument.here(items)
    if folders := run_folders(path):
        if html or md:
            raise StoreError(f"{path} is no run folder, it holds {len(folders)}: name one of them for --html and --md.")
        print(runs_table(folders, here))
        return
    check_in_place(path)
    folder = RunFolder(path)
    report = write_report(folder)
    old = archived(report.harness, report.bank, read_plan(folder).items, here)
    print(markdown(report, old) if md else "\n".join(summary(report, old)))
    if html:
        print(f"\nwritten: {write_page(folder, old)}")


def _fetch() -> int:
    from pytest_llmbench.external.cache import Refused, cache_folder
    from pytest_llmbench.external.fetch import FetchError, fetch

    try:
        fetch(cache_folder(), print)
    except (FetchError, Refused) as error:
        print(f"llmbench: {error}", file=sys.stderr)
        return 1
    return 0


def _doctor() -> int:
    found = examine(Profile().sandbox())
    print(tell(found))
    return 0 if found["layer"] else 1


def limits_table() -> str:
    """The register of limits as a table."""
    rows = [
        [
            name,
            f"{limit.value:g}",
            "" if limit.smoke is None else f"{limit.smoke:g}",
            limit.unit,
            limit.state,
            limit.why,
        ]
        for name, limit in harness().limits.items()
    ]
    return tabulate(
        rows, headers=["limit", "standard", "smoke", "unit", "state", "why"], maxcolwidths=[None] * 5 + [60]
    )


def _validate(items_folder: Path | None, variants: int, release: bool) -> int:
    bank = items_folder or find_bank(Path.cwd())
    items = load_bank(bank)
    if not items:
        raise BankError(f"{bank} holds no item.toml or items.toml")
    if release:
        _release(bank, items)
    sandbox = _sandbox(items)
    findings: list[Finding] = []
    missing: dict[str, list[str]] = {}
    for number, item in enumerate(items, 1):
        print(f"{item.spec.id} ({number} of {len(items)})", file=sys.stderr)
        try:
            findings += score_references(item, variants, sandbox)
        except Unavailable as error:
            missing.setdefault(str(error), []).append(item.spec.id)
    print(_totals(items, findings))
    for reason, left in missing.items():
        print(f"\nnot validated: {left[0]}{f' and {len(left) - 1} more' if left[1:] else ''}: {reason}")
    wrong = [finding.wrong for finding in findings if finding.wrong] + unreleased(bank, items) + list(_unsigned())
    print(
        f"\nbank {bank_version(bank)} {bank_checksum(items)[:12]}  harness {harness().version} {signature()[:12]}  "
        f"grader {grader()[:12]}"
    )
    for sentence in wrong:
        print(f"wrong: {sentence}")
    outcome = f"{len(wrong)} wrong" if wrong else "in order"
    print(f"{len(findings)} references over {variants} variants x {len(RUNS)} runs: {outcome}")
    return 1 if wrong else 0


def _sandbox(items: Sequence[Item]) -> Sandbox | None:
    """Where the references of ``items`` run; None where none of them runs anything."""
    if not any(item.spec.needs_sandbox for item in items):
        return None
    return choose(Profile().sandbox())


def _release(bank: Path, items: Sequence[Item]) -> None:
    (bank / LOCK_FILE).write_text(released_text(bank, items), encoding="utf-8")
    signed = {harness().version: signature(), **signed_versions()}
    lines = [f'"{version}" = "{value}"' for version, value in sorted(signed.items())]
    SIGNATURES.write_text(
        "# Signature of every released harness version.\n\n[signatures]\n" + "\n".join(lines) + "\n", encoding="utf-8"
    )


def _unsigned() -> Iterator[str]:
    if signed_versions().get(harness().version) != signature():
        yield (
            f"the harness was changed but is still version {harness().version}; give frozen.toml a new version and "
            "run `llmbench validate --release`"
        )


def _totals(items: Sequence[Item], findings: Sequence[Finding]) -> str:
    """The references that every item has as a table, with one column for alike items; below it, the named ones."""
    column = {item.spec.id: item.spec.group or item.spec.id for item in items}
    names = list(dict.fromkeys(column.values()))
    maximum = dict.fromkeys(names, Decimal(0))
    for item in items:
        maximum[column[item.spec.id]] += item.spec.points
    rows: dict[str, dict[str, Decimal]] = {}
    for finding in findings:
        cells = rows.setdefault(finding.reference, {})
        cells[column[finding.item]] = cells.get(column[finding.item], Decimal(0)) + finding.points
    shared = {ref: cells for ref, cells in rows.items() if not ref.startswith("defective:")}
    table = [["maximum", *(f"{maximum[name]:g}" for name in names)]]
    table += [
        [ref, *(f"{cells[name]:.2f}" if name in cells else "" for name in names)] for ref, cells in shared.items()
    ]
    named = [
        [finding.item, finding.reference.removeprefix("defective:"), f"{finding.points:.2f}"]
        for finding in findings
        if finding.reference not in shared
    ]
    return "\n\n".join(
        (
            tabulate(table, headers=["reference", *names], disable_numparse=True),
            tabulate(named, headers=["item", "defective reference", "points"], disable_numparse=True),
        )
    )
