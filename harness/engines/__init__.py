"""Engines as checks see them: launch, a client, normalised facts. `LAUNCHABLE` says what this release can start."""

from harness.engines.arguments import LaunchSpec, engine_flags
from harness.engines.base import Answer, Completion, GenerateRequest, KVRows, RankInfo, ServerInfo
from harness.engines.client import NO_ENDPOINT, EngineClient
from harness.engines.reference import ReferenceEngine, log_tail
from harness.engines.wire import parse_server_info

# Kinds with an adapter. SGLang and vLLM can be declared in suites; a job that asks for one is `not_run`.
LAUNCHABLE = frozenset({"reference"})

__all__ = [
    "LAUNCHABLE",
    "NO_ENDPOINT",
    "Answer",
    "Completion",
    "EngineClient",
    "GenerateRequest",
    "KVRows",
    "LaunchSpec",
    "RankInfo",
    "ReferenceEngine",
    "ServerInfo",
    "engine_flags",
    "log_tail",
    "parse_server_info",
]
