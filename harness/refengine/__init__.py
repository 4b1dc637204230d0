"""The embedded engine: a small one that really shards over processes. It knows nothing of suites, checks or faults."""

from harness.refengine.config import CommBackend, DcpCommBackend, Device, EngineConfig, StartMethod
from harness.refengine.launcher import EXIT_DIED, launch

__all__ = ["EXIT_DIED", "CommBackend", "DcpCommBackend", "Device", "EngineConfig", "StartMethod", "launch"]
