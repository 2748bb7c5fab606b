"""One request at a time per endpoint, across processes."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
model.runtime.endpoint, model.concurrency = sys.argv[1], int(sys.argv[2])
print("waiting", flush=True)
with model.exclusive():
    print("entered", flush=True)
"""


def open_model(endpoint: str, concurrency: int = 1) -> Model:
    model = Model(ModelSpec("m", "ollama"), None, RuntimeOptions(Profile().settings()), runtime=ReferenceRuntime("m"))
    assert model.runtime is not None
    model.runtime.endpoint = endpoint
    model.concurrency = concurrency
    return model


def other_process(endpoint: str, concurrency: int = 1) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", OTHER, endpoint, str(concurrency)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    return process


def rest_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    with process:
        return process.stdout.read()


def waits(process: subprocess.Popen[str]) -> bool:
    try:
        process.wait(timeout=1)
    except subprocess.TimeoutExpired:
        return True
    return False


@pytest.mark.parametrize("spelling", ["http://127.0.0.1:1/test", "http://localhost:1/test/"])
def test_a_second_process_waits_for_the_same_endpoint(spelling: str) -> None:
    with open_model("http://127.0.0.1:1/test").exclusive():
        process = other_process(spelling)
        assert waits(process)
    assert rest_of(process) == "entered\n"


def test_two_slots_take_two_requests_and_a_third_one_waits() -> None:
    url = "http://127.0.0.1:3/test"
    with open_model(url, 2).exclusive():
        assert rest_of(other_process(url, 2)) == "entered\n"
        with open_model(url, 2).exclusive():
            third = other_process(url, 2)
            assert waits(third)
    assert rest_of(third) == "entered\n"


def test_a_session_of_one_request_at_a_time_gets_the_endpoint_for_itself() -> None:
    url = "http://127.0.0.1:4/test"
    with open_model(url, 2).exclusive():
        alone = other_process(url)
        assert waits(alone)
    assert rest_of(alone) == "entered\n"
    with open_model(url).exclusive():
        parallel = other_process(url, 2)
        assert waits(parallel)
    assert rest_of(parallel) == "entered\n"


def test_a_second_process_does_not_wait_for_another_endpoint() -> None:
    with open_model("http://127.0.0.1:1/test").exclusive():
        assert rest_of(other_process("http://127.0.0.1:2/test")) == "entered\n"
