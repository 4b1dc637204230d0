"""The generator of *sums*: pinned, split without overlap, and right by a count of single things."""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import islice

import pytest

from harness.checks.tasks import sums
from harness.checks.tasks.sums import Problem, Split, make_problem, problems
from harness.checks.tasks.sums_stories import MOST, Amount, Ask, Draws, MoveKind, Story
from harness.errors import HarnessError, UsageError

MANY = 1500
EQUATION = re.compile(r"(\d+) ([-+*/]) (\d+) = (\d+)")


@pytest.fixture(scope="module")
def made() -> list[Problem]:
    return [make_problem(index) for index in range(MANY)]


def test_problem_depends_on_its_index_alone(made: list[Problem]) -> None:
    assert make_problem(7) == made[7]
    assert make_problem(7) != made[8]


def test_the_pinned_problems_come_out() -> None:
    task = sums.load()
    assert (task.name, task.label) == ("sums", "sums (synthetic, not GSM8K)")
    assert task.digest == sums.EVAL_SHA256 == sums.digest_of(task.questions(shots=5))
    assert sums.digest_of(task.shots(sums.SHOTS_SIZE)) == sums.SHOTS_SHA256
    assert [question.number for question in task.questions(shots=0)] == list(range(1, sums.EVAL_SIZE + 1))
    assert task.shots(2) == task.shots(5)[:2]


@pytest.mark.parametrize("pin", ["EVAL_SHA256", "SHOTS_SHA256"])
def test_other_problems_than_the_pinned_are_refused(pin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, pin, "0" * 64)
    with pytest.raises(HarnessError, match=f"pinned is {'0' * 64}"):
        sums.load.__wrapped__()


def test_more_examples_than_there_are_is_the_users_error() -> None:
    with pytest.raises(UsageError, match="has 100 examples to show, not 101"):
        sums.load().shots(101)


def test_no_question_is_in_two_splits() -> None:
    task = sums.load()
    scored = {question.question for question in task.questions(shots=0)}
    shown = {question.question for question in task.shots(sums.SHOTS_SIZE)}
    trained = {problem.question for problem in islice(problems(Split.TRAIN), 4000)}
    assert len(scored) == sums.EVAL_SIZE
    assert len(shown) == sums.SHOTS_SIZE
    assert not scored & shown and not scored & trained and not shown & trained


def test_every_split_gets_its_sixteenths(made: list[Problem]) -> None:
    counts = {split: sum(problem.split is split for problem in made) for split in Split}
    assert 0.2 < counts[Split.EVAL] / MANY < 0.3
    assert 0.03 < counts[Split.SHOTS] / MANY < 0.1


def test_answers_are_true_equations_that_end_in_the_number(made: list[Problem]) -> None:
    for problem in made:
        *steps, last = problem.answer.split("\n")
        assert last == f"#### {problem.expected}"
        results = [holds(step) for step in steps]
        assert 1 <= len(steps) <= 8
        assert str(results[-1]) == problem.expected
        assert all(1 <= result <= MOST for result in results)


def holds(step: str) -> int:
    """The right-hand side, after an exact check that it is one."""
    found = EQUATION.fullmatch(step)
    assert found, step
    left, right, result = (Fraction(found[place]) for place in (1, 3, 4))
    exact = {"+": left + right, "-": left - right, "*": left * right, "/": left / right}[found[2]]
    assert exact == result, step
    return int(result)


def test_answers_are_what_a_count_of_single_things_gives(made: list[Problem]) -> None:
    for problem in made:
        assert str(counted(problem.story)) == problem.expected, problem.question


def counted(story: Story) -> int:
    """The answer by moving one thing at a time: no formula of the generator is used."""
    pile = handfuls(story.start)
    for move in story.moves:
        if move.kind is MoveKind.DOUBLE:
            pile += list(pile)
        elif move.kind is MoveKind.HALVE:
            pile = pile[::2]
        elif move.kind in (MoveKind.ADD, MoveKind.ADD_GROUPS, MoveKind.ADD_DAILY):
            pile += handfuls(move.amount)
        else:
            for _ in handfuls(move.amount):
                pile.pop()
    number = story.number
    match story.ask:
        case Ask.COUNT:
            return len(pile)
        case Ask.PRICE:
            return sum(number for _ in pile)
        case Ask.SHARE:
            return len(pile[::number])
        case Ask.COMPARE:
            return len(pile[number:])


def handfuls(amount: Amount) -> list[str]:
    return ["thing" for _ in range(amount.groups) for _ in range(amount.each)]


def test_every_number_of_a_story_is_told(made: list[Problem]) -> None:
    for problem in made:
        told = [int(number) for number in re.findall(r"\d+", problem.question)]
        for number in numbers(problem.story):
            told.remove(number)


def numbers(story: Story) -> list[int]:
    amounts = [story.start, *(move.amount for move in story.moves if move.amount)]
    plain = [amount.each for amount in amounts] + [amount.groups for amount in amounts if amount.groups > 1]
    return plain + ([story.number] if story.number is not None else [])


def test_all_kinds_of_moves_and_questions_occur(made: list[Problem]) -> None:
    assert {move.kind for problem in made for move in problem.story.moves} == set(MoveKind)
    assert {problem.story.ask for problem in made} == set(Ask)
    assert {len(problem.story.moves) for problem in made} == {1, 2, 3}


def test_draws_reach_both_ends() -> None:
    draws = Draws("ends")
    assert {draws.below(3) for _ in range(200)} == {0, 1, 2}
