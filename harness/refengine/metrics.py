"""`/metrics` in Prometheus' text format, version 0.0.4, under SGLang's names where it has one."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(slots=True, kw_only=True)
class Counters:
    """What the front has counted since it started; only ever grows."""

    requests: int = 0
    refused: int = 0
    aborted: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0


_COUNTER_NAMES = {
    "requests": ("sglang:num_requests_total", "Requests that were put to the engine."),
    "refused": ("sglang:num_refused_requests_total", "Requests that could never fit, or were malformed."),
    "aborted": ("sglang:num_aborted_requests_total", "Requests that ended by an abort."),
    "prompt_tokens": ("sglang:prompt_tokens_total", "Prompt tokens of answered requests."),
    "generation_tokens": ("sglang:generation_tokens_total", "Tokens generated for answered requests."),
}


def render(counters: Counters, *, info: dict[str, Any]) -> str:
    """The whole page; `info` is the body of `/server_info`."""
    lines: list[str] = []
    for field in fields(Counters):
        name, help_ = _COUNTER_NAMES[field.name]
        lines += _metric(name, help_, kind="counter", samples={"": getattr(counters, field.name)})
    gauges = {
        "sglang:num_running_reqs": ("Requests that hold pages.", info["running"]),
        "sglang:num_queue_reqs": ("Requests that wait for pages.", info["waiting"]),
        "sglang:max_total_num_tokens": ("Capacity over all ranks, in tokens.", info["max_total_num_tokens"]),
    }
    for name, (help_, value) in gauges.items():
        lines += _metric(name, help_, kind="gauge", samples={"": value})
    free = {f'{{tp_rank="{rank["tp_rank"]}"}}': rank["kv_rows_free"] for rank in info["ranks"]}
    lines += _metric("harness:kv_rows_free", "Free KV rows of each rank.", kind="gauge", samples=free)
    calls = {
        f'{{tp_rank="{rank["tp_rank"]}",group="{group}",kind="{kind}"}}': count
        for rank in info["ranks"]
        for group, kinds in rank["collectives"].items()
        for kind, count in kinds.items()
    }
    help_ = "Collective calls of each rank, by group and kind."
    lines += _metric("harness:collectives_total", help_, kind="counter", samples=calls)
    return "\n".join(lines) + "\n"


def _metric(name: str, help_: str, *, kind: str, samples: dict[str, int]) -> list[str]:
    values = [f"{name}{label} {value}" for label, value in samples.items()]
    return [f"# HELP {name} {help_}", f"# TYPE {name} {kind}", *values]
