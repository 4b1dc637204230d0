"""Engines as checks see them: launch, a client, normalised facts. `LAUNCHABLE` says what this release can start."""

from harness.engines.arguments import LaunchSpec, PairSpec, engine_flags
from harness.engines.base import (
    Answer,
    Completion,
    GenerateRequest,
    KVRows,
    RankInfo,
    RankTransfer,
    ServerInfo,
)
from harness.engines.child import log_tail
from harness.engines.client import NO_ENDPOINT, EngineClient
from harness.engines.pair import PDPair
from harness.engines.reference import ReferenceEngine
from harness.engines.running import RunningEngine, launch_engine
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
    "PDPair",
    "PairSpec",
    "RankInfo",
    "RankTransfer",
    "ReferenceEngine",
    "RunningEngine",
    "ServerInfo",
    "engine_flags",
    "launch_engine",
    "log_tail",
    "parse_server_info",
]
