"""Everything again without the rights of root."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import files
from pathlib import Path

import pytest
from sandbox.jails import open_folder

from pytest_llmbench.sandbox.runtime import runtime

NOBODY = 65_534
HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parents[1] / "pytest_llmbench"
NEEDED = ("pytest", "pluggy", "iniconfig", "packaging", "pygments", "pyseccomp")
TESTED = ("test_attacks.py", "test_jail.py", "test_files.py")

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the tests run as a normal user already")


def interpreter() -> str:
    """A Python that everybody can run, as new as the project needs."""
    if runtime().unreachable() is None:
        return runtime().executable
    version = "import sys; sys.exit(sys.version_info < (3, 11))"
    for name in ("python3", "python3.13", "python3.12", "python3.11"):
        path = shutil.which(name, path="/usr/local/bin:/usr/bin")
        if path is not None and subprocess.run([path, "-c", version], check=False).returncode == 0:
            return path
    pytest.skip("every Python of this machine that is new enough lies where only root may look")


@pytest.fixture(scope="module")
def copy() -> Iterator[Path]:
    """What the tests need, where everybody can read it."""
    with open_folder() as folder:
        shutil.copytree(PACKAGE / "sandbox", folder / "pytest_llmbench" / "sandbox")
        shutil.copy(PACKAGE / "__init__.py", folder / "pytest_llmbench")
        shutil.copytree(HERE, folder / "tests" / "sandbox")
        for distribution in NEEDED:
            for path in files(distribution) or ():
                if path.suffix == ".py":
                    target = folder.joinpath(*path.parts)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(path.locate(), target)
        yield folder


@pytest.mark.parametrize("module", TESTED)
def test_a_normal_user_is_as_safe(copy: Path, module: str) -> None:
    command = [interpreter(), "-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib"]
    ran = subprocess.run(
        [*command, "--rootdir", str(copy), f"tests/sandbox/{module}"],
        cwd=copy,
        env={"PATH": "/usr/bin:/bin:/sbin", "PYTHONPATH": f"{copy}:{copy / 'tests'}", "LANG": "C.UTF-8"},
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
    )
    print(ran.stdout, ran.stderr, file=sys.stderr)
    assert ran.returncode == 0
    passed = re.search(r"(\d+) passed", ran.stdout)
    assert passed is not None
    assert int(passed[1]) > 10
