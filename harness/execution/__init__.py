"""Running jobs on this machine: one contained pytest process per job, results streamed to the ledger."""

from harness.execution.command import Command, Launch, pytest_command
from harness.execution.execute import execute
from harness.execution.options import RunOptions, TargetEnvironment
from harness.execution.paths import RunPaths

__all__ = ["Command", "Launch", "RunOptions", "RunPaths", "TargetEnvironment", "execute", "pytest_command"]
