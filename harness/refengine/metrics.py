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

# By their names in a rank's "transfer"; an engine on its own has none, and each side only its own.
_TRANSFER = {
    "bytes_sent": "Bytes of KV that each rank has sent to another engine.",
    "rows_sent": "KV rows that each rank has sent to another engine.",
    "bytes_received": "Bytes of KV that each rank has received from another engine.",
    "rows_received": "KV rows that each rank has received from another engine.",
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
    for moved, help_ in _TRANSFER.items():
        samples = {
            f'{{tp_rank="{rank["tp_rank"]}"}}': rank["transfer"][moved]
            for rank in info["ranks"]
            if moved in rank.get("transfer", {})
        }
        if samples:
            lines += _metric(f"harness:transfer_{moved}_total", help_, kind="counter", samples=samples)
    return "\n".join(lines) + "\n"


def _metric(name: str, help_: str, *, kind: str, samples: dict[str, int]) -> list[str]:
    values = [f"{name}{label} {value}" for label, value in samples.items()]
    return [f"# HELP {name} {help_}", f"# TYPE {name} {kind}", *values]
