"""A whole harness to be killed. Run as a script: `harness_process.py REPORTS CWD CODE`; one job, one slot."""

from __future__ import annotations

import sys
from pathlib import Path

from run_bench import QuietView, fake_command, new_job

from harness.execution import RunOptions, RunPaths, execute
from harness.ledger import Ledger
from harness.planning import ReadyPool


def main(reports: Path, cwd: Path, code: str) -> None:
    job = new_job("victim")
    with Ledger.open(reports / "ledger.db") as ledger:
        run_id = ledger.start_run(harness_sha="sha")
        print(run_id, flush=True)
        record = execute(
            [job],
            pools={"cpu": ReadyPool(name="cpu", devices=("cpu:0",))},
            ledger=ledger,
            run_id=run_id,
            paths=RunPaths(reports=reports, run=run_id),
            view=QuietView(),
            cannot=lambda job: None,
            options=RunOptions(cwd=cwd),
            command=fake_command({"victim": code}),
        )
        print(record.jobs[0].verdict, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
