"""Items that run what was delivered: confined or not at all, repaired with a note, evidence that gives nothing away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

NODE = "-k=X01"
RECORD = "X01-v0-r1-script_x"


@pytest.fixture
def measured(bank: Any) -> Callable[..., tuple[pytest.RunResult, dict[str, Any]]]:
    """Measure X01 with a delivery of the given source; gives the result and the record."""

    def measure(source: str, *arguments: str) -> tuple[pytest.RunResult, dict[str, Any]]:
        bank.code_item()
        bank.delivers("sums.py", source)
        result = bank.run("script:x", NODE, "-rA", *arguments)
        [record] = bank.records().values()
        return result, record

    return measure


@pytest.fixture
def no_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which no layer works: the only one allowed is that of another system."""
    monkeypatch.setenv("LLMBENCH_SANDBOX", "seatbelt")


def test_delivered_code_is_called_and_the_record_names_the_layer(measured: Any) -> None:
    _, record = measured("def add(a, b):\n    return a + b\n")
    assert (record["status"], record["points"]) == ("measured", 4.0)
    assert record["confinement"] in ("bubblewrap", "landlock")


def test_a_lost_row_says_what_was_called_and_not_with_what(measured: Any, bank: Any) -> None:
    result, record = measured("def add(a, b):\n    return a - b\n")
    [row] = [row for row in record["rows"] if row["id"] == "adds"]
    assert row["earned"] == 0
    assert "add" in row["evidence"]
    for number in ("12345", "12385", "12305"):
        assert number not in row["evidence"]
        assert number not in result.stdout.str()
        assert not [path for path in bank.folder.rglob("*") if path.is_file() and number in path.read_text()]


def test_hidden_cases_are_shown_on_demand_and_never_written(measured: Any, bank: Any) -> None:
    result, _ = measured("def add(a, b):\n    return a - b\n", "--llm-show-hidden")
    result.stdout.fnmatch_lines(["*hidden: add(40, 12345)*"])
    assert not [path for path in bank.folder.rglob("*") if path.is_file() and "12345" in path.read_text()]


def test_a_repair_costs_one_hygiene_row_and_is_counted_beside_the_score(measured: Any, bank: Any) -> None:
    source = "def add(a: int, b: Optional[int]) -> int:\n    return a + (b or 0)\n"
    result, record = measured(source)
    assert [row["id"] for row in record["rows"] if row["earned"] < row["points"]] == ["syntax"]
    assert record["repairs"] == ["sums.py: added `from typing import Optional`"]
    result.stdout.fnmatch_lines(["script:x *3.00[*] *3.00", "model *repairs*", "*", "script:x *3.00 * 1"])
    assert bank.report()["levels"]["A"]["models"]["script:x"]["repairs"] == 1


def test_without_a_layer_the_item_is_unsupported_with_the_way_out_and_the_model_is_not_asked(
    bank: Any, no_layer: None
) -> None:
    bank.code_item()
    result = bank.run("script:golden", "-rs")
    records = {record["item"]: record for record in bank.records().values()}
    assert (records["X01"]["status"], records["X01"]["points"]) == ("unsupported", None)
    assert "--llm-allow-unconfined" in records["X01"]["reason"]
    assert records["T01"]["status"] == "measured"
    assert [call[1] for call in bank.calls()] == ["T01"]
    assert result.ret == 0
    assert bank.report()["levels"]["A"]["models"]["script:golden"]["points_mean"] is None


def test_an_unconfined_score_is_stamped_and_never_ranks(bank: Any, no_layer: None) -> None:
    bank.code_item()
    result = bank.run("golden", "--llm-allow-unconfined")
    record = next(record for record in bank.records().values() if record["item"] == "X01")
    assert (record["points"], record["confinement"]) == (4.0, "unconfined")
    report = bank.report()
    assert (report["ranks"], report["levels"]["A"]["models"]["golden"]["unconfined"]) == (False, 1)
    result.stdout.fnmatch_lines(["golden *4.00U*", "No ranking. Some code ran unconfined*"])


def test_golden_and_defective_code_earn_what_they_declare(bank: Any) -> None:
    bank.code_item()
    assert bank.run("golden,defective:all,null", NODE).ret == 0
    points = {record["ref"]: record["points"] for record in bank.records().values()}
    assert points == {"golden": 4, "defective": 2, **{f"null:{n}": 0 for n in ("silent", "echo", "constant", "random")}}


HOSTILE = {
    "loop": "while True:\n    pass\n",
    "flood": "import os\nwhile True:\n    os.write(1, b'x' * 65536)\n",
    "exit": "import os\nos._exit(0)\n",
    "hang": "import time\ntime.sleep(1000)\n",
    "memory": "x = []\nwhile True:\n    x.append(bytearray(1 << 20))\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_delivery_costs_its_own_row_and_nothing_to_its_neighbour(bank: Any, name: str) -> None:
    bank.code_item()
    bank.delivers("sums.py", f"def add(a, b):\n    return a + b\n\n\n{HOSTILE[name]}")
    result = bank.run("script:x,golden", NODE)
    points = {record["ref"]: record["points"] for record in bank.records().values()}
    assert points == {"script:x": 2, "golden": 4}
    assert result.ret == 0
