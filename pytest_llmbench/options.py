"""The command line of the plugin."""

from __future__ import annotations

import argparse

import pytest

MARKER = "llmbench"
"""Marks a test function as an item of one's own."""


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


def _server(text: str) -> str:
    scheme, separator, rest = text.strip().partition("://")
    if scheme.lower() not in ("http", "https") or not separator or not rest.strip("/"):
        raise argparse.ArgumentTypeError(f"{text!r} is no http:// or https:// URL")
    return text.strip().rstrip("/")


def add_options(parser: pytest.Parser) -> None:
    """Add the plugin's options; none of them does anything without ``--llm-model`` or ``--llm-resume``."""
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
        "--llm-endpoint",
        action="append",
        type=_server,
        default=[],
        metavar="URL",
        help="server of the session's models in place of OLLAMA_HOST and --llm-base-url; repeated: one xdist worker "
        "for each, all of them serving the same models",
    )
    add(
        "--llm-concurrency",
        type=_whole(1),
        default=1,
        metavar="N",
        help="requests that an endpoint may get at a time, each from an xdist worker of its own (default 1); stamped",
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
    add(
        "--llm-deadline",
        default=None,
        metavar="WHEN",
        help="start no model's run that would not end by then: a duration (10h, 1h30m) or a time of day (07:30)",
    )
    add(
        "--llm-resume",
        default=None,
        metavar="DIR",
        help="go on in this run folder: what is measured is kept, the rest is measured under the same options",
    )
    add(
        "--llm-determinism",
        action="store_true",
        help="ask every instance of run 1 a second time with the same seed, and say what differs",
    )
    add(
        "--llm-until-separated",
        action="store_true",
        help="after each round, run the models whose order is sustained no more; --llm-runs is the most",
    )
    add(
        "--llm-items",
        default=None,
        metavar="DIR",
        help="bank to measure with where no path is given (default: ./items, or the one that comes with the plugin)",
    )
    add("--llm-report-dir", default=None, metavar="DIR", help="run folder, exactly (default: a new one under reports/)")
    add(
        "--llm-fail-under",
        type=_share,
        default=None,
        metavar="SHARE",
        help="fail every node that earns less than this share of its points",
    )
