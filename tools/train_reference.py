"""Train the model that the reference engine serves as `builtin:sums-gqa`, on CPUs, from nothing.

Writes DIR/sums-gqa.safetensors and DIR/sums-gqa.log. The same command gives the same checkpoint on the same
kind of CPU with the same torch; nothing depends on the time that it takes.
"""

from __future__ import annotations

import argparse
import hashlib
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from reference_training.checkpoint import read_weights, write_checkpoint
from reference_training.data import make_tokenizer
from reference_training.evaluate import accuracy
from reference_training.loop import Trained, Trainer
from reference_training.plan import SHARDS, TrainingPlan
from reference_training.processes import Group, run_together
from reference_training.report import Report

from harness.checks.tasks import sums
from harness.refengine.word_tokenizer import WordTokenizer

CHECKPOINTS = Path(__file__).resolve().parent.parent / "harness" / "refengine" / "checkpoints"
NAME = "sums-gqa"
STEPS = 2000
# By how many worked examples the prompts of the final exams have: the share that must be solved.
EXAMS = {0: 0.95, 5: 0.90}

EXAMPLES = """examples:
  python tools/train_reference.py
  python tools/train_reference.py --steps 100 --exam 20 --out /tmp/short   # a minute; it solves nothing yet
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the command line asks for."""

    plan: TrainingPlan
    exam: int
    out: Path

    @property
    def command(self) -> str:
        """What makes the same weights again."""
        return f"python tools/train_reference.py --steps {self.plan.steps} --seed {self.plan.seed}"


def main() -> None:
    options = _parser().parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    plan = TrainingPlan(steps=options.steps, seed=options.seed)
    run_together(options.processes, work, Job(plan=plan, exam=options.exam, out=options.out))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--steps",
        type=_count,
        default=STEPS,
        help="updates, of some 4,000 tokens each (default: %(default)s)",
    )
    add("--seed", type=int, default=0, help="of first weights and examples (default: %(default)s)")
    add(
        "--processes", type=int, choices=range(1, SHARDS + 1), default=SHARDS, help="a core each; same result"
    )
    add("--exam", type=_count, default=sums.EVAL_SIZE, help="problems per final exam (default: %(default)s)")
    add(
        "--out",
        type=Path,
        default=CHECKPOINTS,
        help="folder (default: %(default)s)",
    )
    return parser


def _count(word: str) -> int:
    if (count := int(word)) < 1:
        raise argparse.ArgumentTypeError(f"{word} is not 1 or more")
    return count


def work(group: Group, job: Job) -> None:
    """What every process does: train, round to fp16 through the file, sit the exams. Rank 0 writes."""
    tokenizer = make_tokenizer()
    report = Report(steps=job.plan.steps) if group.rank == 0 else None
    if report:
        report.say(f"$ {job.command}")
    with report.shown() if report else nullcontext():
        trained = Trainer(job.plan, tokenizer, group, report).run()
    path = job.out / f"{NAME}.safetensors"
    if report:
        _write(path, trained, tokenizer, job, report)
    # Nobody reads the file before it is there.
    group.texts("written")
    read_weights(path, trained.model)
    shares = {}
    for shots in EXAMS:
        shares[shots] = accuracy(trained.model, tokenizer, group, questions=job.exam, shots=shots)
        if report:
            report.say(
                f"exam   {job.exam} problems, {shots}-shot, weights as in the file: {shares[shots]:.1%} solved"
            )
    if report:
        report.write(path.with_suffix(".log"))
    _require(shares, whole=job.exam == sums.EVAL_SIZE)


def _require(shares: dict[int, float], *, whole: bool) -> None:
    """Exit status 1 for a model that fails its exams; a part of an exam proves nothing either way."""
    failed = [f"{shots}-shot: {shares[shots]:.1%}" for shots, least in EXAMS.items() if shares[shots] < least]
    if whole and failed:
        wanted = ", ".join(f"{least:.0%} {shots}-shot" for shots, least in EXAMS.items())
        raise SystemExit(f"the model solves too little ({'; '.join(failed)}); wanted: {wanted}")


def _write(path: Path, trained: Trained, tokenizer: WordTokenizer, job: Job, report: Report) -> None:
    training = {
        "command": job.command,
        "data_sha256": trained.data_sha256,
        "steps": job.plan.steps,
        "tokens": trained.tokens,
        "seed": job.plan.seed,
        "torch": torch.__version__,
        "cpu": torch.backends.cpu.get_cpu_capability(),
    }
    write_checkpoint(path, trained.model, tokenizer, training=training)
    data = path.read_bytes()
    report.say(f"data   {trained.tokens} tokens in rows, sha256 {trained.data_sha256}")
    report.say(f"made   by torch {training['torch']} on a CPU with {training['cpu']}")
    report.say(
        f"file   {len(data)} bytes, {len(tokenizer.words)} words, sha256 {hashlib.sha256(data).hexdigest()}"
    )


if __name__ == "__main__":
    main()
