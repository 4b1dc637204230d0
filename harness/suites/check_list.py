"""The `checks:` of a suite: names, per-profile values, and validation against each check's own model.

Per-profile values come in two forms, which may be mixed: a value `{cpu: x, gpu: y}`, and whole overlays under
the keys `cpu:` and `gpu:` of a check. `resolve_profile` settles both into one plain mapping per profile, with
every value keeping its place, so that an error points at the overlay it came from.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic import ValidationError

from harness.errors import Mark, SourceError
from harness.suites.check_params import CHECK_PARAMS, CheckParams
from harness.suites.diagnose import source_errors
from harness.suites.model import ProfileName
from harness.suites.wording import Location, dotted, show, suggest
from harness.suites.yaml_marks import MarkedDict, MarkedList

_PROFILES = frozenset(name.value for name in ProfileName)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSpec:
    """One check of a job: its name in `CHECK_PARAMS`, and its parameters for the job's profile."""

    name: str
    params: CheckParams


@dataclass(slots=True)
class CheckList:
    """The checks of a suite by profile, and what is wrong with them."""

    by_profile: dict[ProfileName, tuple[CheckSpec, ...]] = field(default_factory=dict)
    errors: list[SourceError] = field(default_factory=list)


def read_checks(tree: MarkedDict) -> CheckList:
    """The checks of `tree` for its profiles; overlays of others are validated and dropped."""
    profiles = tree.get("profiles")
    names = [name for name in ProfileName if isinstance(profiles, MarkedDict) and name.value in profiles]
    result = CheckList(by_profile=dict.fromkeys(names, ()))
    entries = tree.get("checks")
    if not isinstance(entries, MarkedList):
        return result
    seen: set[str] = set()
    for index, (entry, mark) in enumerate(zip(entries, entries.item_marks, strict=True)):
        try:
            name, params = _split(entry, mark, seen, where=("checks", index))
        except SourceError as error:
            result.errors.append(error)
            continue
        seen.add(name)
        _read_check(name, params, result, where=("checks", index, name))
    return result


def _split(entry: object, mark: Mark, seen: set[str], *, where: Location) -> tuple[str, MarkedDict]:
    if isinstance(entry, str) and entry in CHECK_PARAMS:
        raise SourceError(mark, f"a check without parameters is written '{entry}: {{}}'", field=dotted(where))
    if not isinstance(entry, MarkedDict) or len(entry) != 1:
        found = f"{len(entry)} keys" if isinstance(entry, MarkedDict) else show(entry)
        message = (
            f"{found} is not a check; allowed: one check's name and its parameters, such as 'drained: {{}}'"
        )
        raise SourceError(mark, message, field=dotted(where))
    ((name, params),) = entry.items()
    if name not in CHECK_PARAMS:
        message = f"unknown check {show(name)}{suggest(name, CHECK_PARAMS)}"
        raise SourceError(entry.key_marks[name], message, field=dotted(where))
    if name in seen:
        message = f"the check {name!r} is listed twice; allowed: once, since results go by its name"
        raise SourceError(entry.key_marks[name], message, field=dotted(where))
    if not isinstance(params, MarkedDict):
        message = f"{show(params)} is not allowed here; allowed: a mapping of parameters, {{}} for none"
        raise SourceError(entry.value_marks[name], message, field=dotted((*where, name)))
    return name, params


def _read_check(name: str, params: MarkedDict, result: CheckList, *, where: Location) -> None:
    """Validate `params` for each profile; what two profiles have in common is reported once."""
    model = CHECK_PARAMS[name]
    found: dict[str, SourceError] = {}
    for profile in ProfileName:
        if profile not in result.by_profile and profile.value not in _mentioned(params):
            continue
        resolved, errors = resolve_profile(params, profile, where=where)
        try:
            spec = CheckSpec(name=name, params=model.model_validate(resolved))
            if profile in result.by_profile:
                result.by_profile[profile] += (spec,)
        except ValidationError as error:
            errors += source_errors(error, tree=resolved, model=model, prefix=where)
        found |= {str(wrong): wrong for wrong in errors}
    result.errors.extend(found.values())


def _mentioned(params: MarkedDict) -> set[str]:
    names = set(params)
    for value in params.values():
        names |= set(value) if isinstance(value, MarkedDict) else set()
    return names & _PROFILES


def resolve_profile(
    params: MarkedDict, profile: ProfileName, *, where: Location = ()
) -> tuple[MarkedDict, list[SourceError]]:
    """`params` as `profile` sees them, and what is wrong with its overlay and per-profile values."""
    result = MarkedDict(params.mark)
    errors: list[SourceError] = []
    for key in params:
        if key not in _PROFILES:
            _put_for(result, params, key, profile, errors, where=where)
    overlay, where = params.get(profile.value), (*where, profile.value)
    if isinstance(overlay, MarkedDict):
        for key in overlay:
            _put_for(result, overlay, key, profile, errors, where=where)
    elif profile.value in params:
        message = f"{show(overlay)} is not allowed here; allowed: a mapping of parameters"
        errors.append(SourceError(params.value_marks[profile.value], message, field=dotted(where)))
    return result, errors


def _put_for(
    result: MarkedDict,
    source: MarkedDict,
    key: str,
    profile: ProfileName,
    errors: list[SourceError],
    *,
    where: Location,
) -> None:
    """Put the value of `key` that holds for `profile`, if there is one."""
    value, mark = source[key], source.value_marks[key]
    if isinstance(value, MarkedDict) and _PROFILES & set(value):
        for name in value:
            if name not in _PROFILES:
                message = f"unknown profile {show(name)}{suggest(name, sorted(_PROFILES))}"
                errors.append(SourceError(value.key_marks[name], message, field=dotted((*where, key))))
        if profile.value not in value:
            return
        value, mark = value[profile.value], value.value_marks[profile.value]
    result.put(key, value, key_mark=source.key_marks[key], value_mark=mark)
