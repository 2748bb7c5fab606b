"""The command line of the plugin."""

from __future__ import annotations

import argparse

import pytest


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is no share between 0 and 1")
    return value


def _whole(least: int) -> object:
    def parse(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{text} is below {least}")
        return value

    parse.__name__ = f"whole number from {least}"
    return parse


def add_options(parser: pytest.Parser) -> None:
    """Add the plugin's options; none of them does anything without ``--llm-model``."""
    group = parser.getgroup("llmbench", "measuring local language models")
    add = group.addoption
    add(
        "--llm-model",
        action="append",
        default=[],
        metavar="MODEL",
        help="model to measure; a comma list or repeated: NAME (Ollama), openai:NAME, "
        "gguf:PATH, tiny, golden, defective[:NAME|:all], null[:KIND], replay:DIR",
    )
    add("--llm-runs", type=_whole(1), default=1, metavar="N", help="runs 1 to N, each with fresh instances (default 1)")
    add("--llm-variant", type=_whole(0), default=0, metavar="SEED", help="variant of the bank; 0 is the published one")
    add("--llm-profile", choices=("standard", "smoke"), default="standard", help="named caps; only standard ranks")
    add("--llm-sampling", choices=("greedy", "model"), default="greedy", help="greedy, or the model's own settings")
    add(
        "--llm-think",
        choices=("on", "off", "low", "medium", "high"),
        default=None,
        help="ask for this thinking state (default: nothing is sent)",
    )
    add(
        "--llm-base-url",
        default=None,
        metavar="URL",
        help="server of the openai: models; its key comes from LLMBENCH_API_KEY",
    )
    add(
        "--llm-context",
        type=_whole(1),
        default=None,
        metavar="TOKENS",
        help="window of a server that does not tell its own",
    )
    add(
        "--llm-allow-unconfined",
        action="store_true",
        help="run code that a model wrote even where nothing confines it; such scores are stamped and never rank",
    )
    add(
        "--llm-show-hidden",
        action="store_true",
        help="show the hidden cases behind lost rows on the terminal (never written to the run folder)",
    )
    add("--llm-report-dir", default=None, metavar="DIR", help="run folder, exactly (default: a new one under reports/)")
    add(
        "--llm-fail-under",
        type=_share,
        default=None,
        metavar="SHARE",
        help="fail every node that earns less than this share of its points",
    )
