"""One request at a time per endpoint, across processes."""

from __future__ import annotations

import subprocess
import sys

from pytest_llmbench.campaign.models import Model, ModelSpec
from pytest_llmbench.harness.frozen import Profile
from pytest_llmbench.runtimes.base import RuntimeOptions
from pytest_llmbench.runtimes.reference import ReferenceRuntime

OTHER = """
import sys
from pytest_llmbench.campaign.models import Model, ModelSpec
from pytest_llmbench.harness.frozen import Profile
from pytest_llmbench.runtimes.base import RuntimeOptions
from pytest_llmbench.runtimes.reference import ReferenceRuntime

model = Model(ModelSpec("m", "ollama"), None, RuntimeOptions(Profile().settings()), runtime=ReferenceRuntime("m"))
model.runtime.endpoint = sys.argv[1]
print("waiting", flush=True)
with model.exclusive():
    print("entered", flush=True)
"""


def open_model(endpoint: str) -> Model:
    model = Model(ModelSpec("m", "ollama"), None, RuntimeOptions(Profile().settings()), runtime=ReferenceRuntime("m"))
    assert model.runtime is not None
    model.runtime.endpoint = endpoint
    return model


def other_process(endpoint: str) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", OTHER, endpoint], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    return process


def rest_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    with process:
        return process.stdout.read()


def test_a_second_process_waits_for_the_same_endpoint() -> None:
    with open_model("http://127.0.0.1:1/test").exclusive():
        process = other_process("http://127.0.0.1:1/test")
        try:
            process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            waited = True
        else:
            waited = False
    assert waited
    assert rest_of(process) == "entered\n"


def test_a_second_process_does_not_wait_for_another_endpoint() -> None:
    with open_model("http://127.0.0.1:1/test").exclusive():
        assert rest_of(other_process("http://127.0.0.1:2/test")) == "entered\n"
