"""What a confined program can do, how it is talked to, and how its end is told."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sandbox.jails import LAYERS, LIMITS, driver, open_folder, sandbox_of, survivors

from pytest_llmbench.sandbox.jail import Ended, Ending, Jail, Limits, Profile, Sandbox, TooLate

PROFILES: tuple[Profile, ...] = ("pure", "tool")
ROOMY = replace(LIMITS, cpu_s=10, wall_s=40)
LONGEST = 10_000


@pytest.fixture(params=LAYERS)
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    with open_folder() as workroot:
        yield replace(sandbox_of(request.param, workroot), limits=ROOMY)
        assert list(workroot.iterdir()) == []
        assert survivors(workroot) == []


def run(sandbox: Sandbox, text: str, *arguments: str, profile: Profile = "pure", stdin: bytes = b"") -> Ending:
    with driver(text) as program, sandbox.workdir({}) as workdir:
        return sandbox.run(program, arguments, workdir, profile=profile, stdin=stdin)


@contextmanager
def started(sandbox: Sandbox, text: str, profile: Profile = "pure", limits: Limits | None = None) -> Iterator[Jail]:
    with (
        driver(text) as program,
        sandbox.workdir({}) as workdir,
        sandbox.start(program, [], workdir, profile=profile, limits=limits) as jail,
    ):
        yield jail


HONEST = {
    "unittest": """
import unittest
class T(unittest.TestCase):
    def test_it(self):
        with self.subTest(1): self.assertAlmostEqual(0.1 + 0.2, 0.3)
assert unittest.main(argv=["t"], exit=False).result.wasSuccessful()
""",
    "text and data": """
import ast, collections, csv, dataclasses, datetime, decimal, enum, fractions, functools, hashlib, io, itertools, json
import operator, random, re, statistics, string, textwrap, typing, unicodedata, uuid, zlib, zoneinfo
@dataclasses.dataclass(frozen=True)
class P:
    x: typing.Optional[int] = None
assert json.loads(json.dumps(dataclasses.asdict(P(1)))) == {"x": 1}
assert decimal.Decimal("1.10").quantize(decimal.Decimal("0.1")) == decimal.Decimal("1.1")
with open("t.csv", "w", newline="", encoding="utf-8") as f: csv.writer(f).writerows([[1, "ä"], [2, "b,c"]])
with open("t.csv", newline="") as f: assert list(csv.reader(f)) == [["1", "ä"], ["2", "b,c"]]
assert re.sub(r"(\\w+)", r"<\\1>", "a b") == "<a> <b>"
assert datetime.datetime(2024, 7, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")).utcoffset().seconds == 7200
uuid.uuid4(); hashlib.sha256(b"").hexdigest(); random.SystemRandom().random()
""",
    "sqlite3": """
import sqlite3
c = sqlite3.connect("t.db"); c.execute("pragma journal_mode=wal"); c.execute("create table t (a integer primary key)")
with c: c.executemany("insert into t values (?)", [(n,) for n in range(100)])
assert sqlite3.connect("t.db").execute("select sum(a) from t").fetchone() == (4950,)
""",
    "files": """
import glob, os, pathlib, shutil, tempfile, zipfile
with tempfile.TemporaryDirectory() as d, tempfile.NamedTemporaryFile() as n:
    p = pathlib.Path(d) / "a" / "b.txt"; p.parent.mkdir(); p.write_text("x"); n.write(b"x")
    shutil.copy2(p, "c.txt"); shutil.copytree(d, "tree"); shutil.move("c.txt", "tree/moved.txt")
    os.link("tree/moved.txt", "l"); os.replace("l", "tree/a/l"); os.symlink("tree", "s")
assert not os.path.exists(d)
with zipfile.ZipFile("z.zip", "w") as z: z.write("tree/moved.txt")
shutil.rmtree("tree"); assert sorted(os.listdir(".")) == ["s", "z.zip"]
pathlib.Path.home().joinpath("x").write_text("x"); open(os.devnull, "w").write("x")
""",
    "threads": """
import concurrent.futures, queue, threading, time
q = queue.Queue()
ts = [threading.Thread(target=lambda: (time.sleep(.01), q.put(1))) for _ in range(12)]
for t in ts: t.start()
for t in ts: t.join()
with concurrent.futures.ThreadPoolExecutor(8) as e: assert sum(e.map(lambda n: n * n, range(20))) == 2470
assert q.qsize() == 12
""",
    "asyncio": """
import asyncio
async def one(n):
    await asyncio.sleep(.01); return await asyncio.to_thread(lambda: n + 1)
async def main(): return sum(await asyncio.gather(*(one(n) for n in range(10))))
assert asyncio.run(main()) == 55
""",
    "signals and time": """
import os, signal, time
hits = []
signal.signal(signal.SIGALRM, lambda *_: hits.append(1)); signal.setitimer(signal.ITIMER_REAL, .01); time.sleep(.05)
signal.signal(signal.SIGUSR1, lambda *_: hits.append(2)); signal.raise_signal(signal.SIGUSR1)
assert hits == [1, 2]
""",
}


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("kind", HONEST)
def test_an_honest_program_works(sandbox: Sandbox, kind: str, profile: Profile) -> None:
    ending = run(sandbox, HONEST[kind] + "print('well done')", profile=profile)
    assert (ending.code, ending.output, ending.limit) == (0, b"well done\n", None), ending.errors.decode()


def test_processes_work_in_profile_tool(sandbox: Sandbox) -> None:
    text = """
import multiprocessing, os, subprocess, sys
assert subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True, text=True).stdout == "42\\n"
p = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]); p.terminate(); assert p.wait() == -15
p = os.fork()
if p == 0: os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]) == 7
print("well done")
"""
    ending = run(sandbox, text, profile="tool")
    assert (ending.code, ending.output) == (0, b"well done\n"), ending.errors.decode()
    assert ending.left_processes == 0


def test_two_starts_see_the_same_fixed_environment(sandbox: Sandbox) -> None:
    text = """
import os, sys
words = {str(n) for n in range(50)}
print({**os.environ, "HOME": "", "TMPDIR": ""}, list(words), sys.argv[1:], sys.flags, os.getcwd() in sys.path)
assert os.environ["HOME"] == os.environ["TMPDIR"] != os.getcwd()
print(sorted(name for name in globals() if not name.startswith("__")), __name__, __file__ == sys.argv[0])
"""
    first, second = run(sandbox, text, "a", "b c"), run(sandbox, text, "a", "b c")
    assert first.code == 0, first.errors
    assert first.output == second.output
    assert b"'TZ': 'UTC', 'LANG': 'C.UTF-8', 'PYTHONHASHSEED': '0'" in first.output
    assert b"['a', 'b c']" in first.output
    assert first.output.endswith(b"['os', 'sys', 'words'] __main__ True\n")


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("raise SystemExit(3)", 3),
        ("1 / 0", 1),
        ("import os; os._exit(99)", 99),
        ("import ctypes; ctypes.string_at(0)", -11),
    ],
)
def test_the_exit_code_is_told(sandbox: Sandbox, text: str, code: int, profile: Profile) -> None:
    ending = run(sandbox, text, profile=profile)
    assert (ending.code, ending.limit, ending.left_processes) == (code, None, 0)
    assert (b"ZeroDivisionError" in ending.errors) == (code == 1)


@pytest.mark.parametrize("profile", PROFILES)
def test_lines_go_to_and_fro(sandbox: Sandbox, profile: Profile) -> None:
    text = "import sys\nfor line in sys.stdin:\n    print(line.strip()[::-1], flush=True)\nraise SystemExit(4)"
    with started(sandbox, text, profile) as jail:
        for word in (b"abc", b"", b"x" * 5_000):
            jail.send(word + b"\n")
            assert jail.read_line(20, LONGEST) == word[::-1]
        with pytest.raises(TooLate):
            jail.read_line(0, LONGEST)
        jail.send(b"a\nb\n")
        assert [jail.read_line(20, LONGEST), jail.read_line(20, LONGEST)] == [b"a", b"b"]


def test_a_line_that_is_too_long_ends_the_program(sandbox: Sandbox) -> None:
    for text in ("print('x' * 20_000); input()", "print('x' * 20_000, end='', flush=True); input()"):
        with started(sandbox, text) as jail:
            with pytest.raises(Ended) as ended:
                jail.read_line(20, LONGEST)
            assert ended.value.ending.limit == "output_bytes"
            with pytest.raises(Ended):
                jail.send(b"x")
            assert jail.end() == ended.value.ending


def test_the_end_of_a_program_is_seen_by_whoever_reads_or_writes(sandbox: Sandbox) -> None:
    with started(sandbox, "print('last', flush=True); raise SystemExit(5)") as jail:
        assert jail.read_line(20, LONGEST) == b"last"
        with pytest.raises(Ended) as ended:
            jail.read_line(20, LONGEST)
        assert ended.value.ending.code == 5
    with started(sandbox, "import os; os.close(0); print('closed', flush=True); os._exit(6)") as jail:
        jail.read_line(20, LONGEST)
        with pytest.raises(Ended) as ended:
            jail.send(b"x" * 2**20)
        assert ended.value.ending.code in (6, -9)


def test_input_that_nobody_reads_does_not_hang(sandbox: Sandbox) -> None:
    limits = replace(ROOMY, cpu_s=0.5, wall_s=2)
    with started(sandbox, "import time; time.sleep(60)", limits=limits) as jail:
        with pytest.raises(Ended) as ended:
            jail.send(b"x" * 2**20)
        assert ended.value.ending.limit == "wall_s"


def test_much_input_and_output_at_once(sandbox: Sandbox) -> None:
    text = "import os\nwhile True:\n    data = os.read(0, 4096)\n    if not data: break\n    os.write(1, data)"
    with started(sandbox, text) as jail:
        jail.send(b"x" * 400_000)
        while True:
            try:
                jail.read_line(0.5, 2**20)
            except TooLate:
                break
        assert jail.end().output == b"x" * 400_000


def test_waiting_for_input_that_never_comes_ends_at_the_end_of_the_pipe(sandbox: Sandbox) -> None:
    ending = run(sandbox, "import sys; print(repr(sys.stdin.read()))", stdin=b"abc")
    assert (ending.code, ending.output) == (0, b"'abc'\n")


def test_leaving_the_block_ends_the_program(sandbox: Sandbox) -> None:
    with started(sandbox, "import os, time\nos.fork()\nprint('up', flush=True)\ntime.sleep(600)", "tool") as jail:
        jail.read_line(20, LONGEST)
    assert jail.end().code == -9


def test_nothing_is_readable_but_what_is_given(sandbox: Sandbox) -> None:
    text = "import sys\nfor path in sys.argv[1:]:\n    try: print(open(path).read())\n    except OSError: print('no')"
    with open_folder() as folder, driver(text) as program, sandbox.workdir({"own": "own"}) as workdir:
        for name in ("given", "withheld"):
            (folder / name).write_text(name, encoding="utf-8")
        arguments = ["own", str(folder / "given"), str(folder / "withheld"), str(program)]
        ending = sandbox.run(program, arguments, workdir, readable=[folder / "given"])
    assert ending.output.split() == [b"own", b"given", b"no", b"no"]


def test_what_a_program_leaves_can_be_read_and_used_by_the_next(sandbox: Sandbox) -> None:
    with sandbox.workdir({"a.py": "A = 1\n", "deep/er/b.py": b"B = 2\n"}) as workdir:
        with driver("open('a.py', 'a').write('C = 3\\n'); open('deep/er/new', 'w').write('x')") as program:
            assert sandbox.run(program, [], workdir).code == 0
        assert (workdir / "a.py").read_text(encoding="utf-8") == "A = 1\nC = 3\n"
        with driver("import sys; sys.path.append('.'); import a; open('deep/er/new', 'a').write(str(a.C))") as program:
            assert sandbox.run(program, [], workdir, profile="tool").code == 0
        assert (workdir / "deep/er/new").read_text(encoding="utf-8") == "x3"
    assert not workdir.exists()


def test_a_lone_surrogate_reaches_the_workdir(sandbox: Sandbox) -> None:
    with sandbox.workdir({"a.py": "x = '\ud800'"}) as workdir:
        assert (workdir / "a.py").read_bytes() == b"x = '\xed\xa0\x80'"


def test_no_descriptor_of_the_runner_is_left_open(sandbox: Sandbox) -> None:
    run(sandbox, "")
    before = len(os.listdir("/proc/self/fd"))
    for profile in PROFILES:
        run(sandbox, "print(1)", profile=profile)
    assert len(os.listdir("/proc/self/fd")) == before


def test_jails_at_the_same_time_do_not_disturb_each_other(sandbox: Sandbox) -> None:
    bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    with started(sandbox, bomb, "tool", replace(ROOMY, cpu_s=0.5, wall_s=20)) as other:
        assert run(sandbox, HONEST["threads"] + "print('well done')").output == b"well done\n"
        assert other.wait().limit in {"cpu_s", "processes"}


def test_a_wall_limit_below_four_times_the_cpu_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="wall_s 7 is less than 4 times cpu_s 2"):
        replace(LIMITS, cpu_s=2, wall_s=7)


def test_a_file_name_that_leaves_the_workdir_is_refused(sandbox: Sandbox) -> None:
    with pytest.raises(ValueError, match="leaves the work directory"), sandbox.workdir({"../x": ""}):
        pass


def test_the_program_may_lie_where_nobody_else_can_read(sandbox: Sandbox, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    program = tmp_path / "program.py"
    program.write_text("print('here')", encoding="utf-8")
    with sandbox.workdir({}) as workdir:
        assert sandbox.run(program, [], workdir).output == b"here\n"
