"""Plant reads at random places in random code: the scan finds every one, and nothing more.

The generator is the oracle: it writes down each read as it plants it, and knows nothing of how a scan follows names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from textwrap import indent

from hypothesis import given, settings
from hypothesis import strategies as st
from planted import found_in, unmarked

AXES = {
    "dcp": "dcp_size",
    "tp": "tp_size",
    "pp": "pp_size",
    "attn_cp": "attn_cp_size",
    "moe_dp": "moe_dp_size",
}
# How a read is written, its category, and what has to stand before it in the same body.
FORMS = [
    ("direct", "server_args.{field}", ""),
    ("direct", "self.server_args.{field}", ""),
    ("direct", "get_server_args().{field}", ""),
    ("direct", "x.model_runner.server_args.{field}", ""),
    ("aliased", "alias{n}.{field}", "alias{n} = server_args"),
    ("aliased", "alias{n}.{field}", "_, alias{n} = 0, get_global_server_args()"),
    ("aliased", "typed{n}.{field}", "typed{n}: ServerArgs = make()"),
    ("aliased", "(walrus{n} := self.server_args).{field}", ""),
    ("aliased", "self._parked.{field}", ""),
    ("defensive", "getattr(server_args, '{field}', 1)", ""),
    ("defensive", "hasattr(self.server_args, '{field}')", ""),
    ("defensive", "getattr(model_runner, '{field}', None)", ""),
]
# Where an expression may stand; `@` is the expression.
PLACES = [
    "use(@)",
    "kept = @ > 1",
    "return @",
    "assert @, 'server_args.dcp_size'",
    "a[@] = 1",
    "use(*[@], **{'tp_size': @})",
    "text = f'size: {@}'",
    "later = lambda n=2: n * @",
    "each = [i for i in range(9) if i % @]",
    "pick = @ if flag else -@",
    "use(one=1, dcp_size=@)",
]
NOISE = [
    "other.dcp_size",
    "server_args.dcp_size = 3",
    "use(dcp_size=1, tp_size=2)",
    "text = 'getattr(server_args, \"dcp_size\", 1)'",
    "# server_args.dcp_size",
    "pass",
    "[server_args.tp_size for server_args in others]",
    "config.tp_size + self.pool.dcp_size",
    "hidden: server_args.dcp_size",
]
WRAPPERS = [
    "if flag:\n{body}",
    "if flag:\n    pass\nelse:\n{body}",
    "for i in range(3):\n{body}",
    "while flag:\n{body}",
    "with opened() as file:\n{body}",
    "try:\n{body}\nfinally:\n    pass",
    "try:\n    pass\nexcept ValueError:\n{body}",
    "def nested{n}():\n{body}",
    "async def nested{n}(a, *, b=1):\n{body}",
    "class Nested{n}:\n    def method(self, server_args, model_runner):\n        self._parked = server_args\n{deep}",
    "match flag:\n    case 1:\n        pass\n    case _:\n{deep}",
]


@dataclass
class Writer:
    """Draws a body; names it makes are numbered, so that none shadows another."""

    draw: st.DrawFn
    count: int = 0
    wanted: int = field(default=0)

    def number(self) -> int:
        self.count += 1
        return self.count

    def body(self, depth: int) -> str:
        statements = [self._statement(depth) for _ in range(self.draw(st.integers(1, 4)))]
        return "\n".join([*statements, "pass"])

    def _statement(self, depth: int) -> str:
        kind = self.draw(st.sampled_from(["read", "read", "noise", "wrap"] if depth else ["read", "noise"]))
        if kind == "noise":
            return self.draw(st.sampled_from(NOISE))
        if kind == "read":
            return self._read()
        text = self.draw(st.sampled_from(WRAPPERS)).replace("{n}", str(self.number()))
        inside = self.body(depth - 1)
        return text.replace("{body}", indent(inside, "    ")).replace("{deep}", indent(inside, " " * 8))

    def _read(self) -> str:
        place = self.draw(st.sampled_from(PLACES))
        befores = []
        while "@" in place:
            category, text, before = self.draw(st.sampled_from(FORMS))
            if "f'" in place:
                text = text.replace("'", '"')
            if "for i in" in place and ":=" in text:
                continue  # Python itself refuses it where a comprehension iterates
            axis = self.draw(st.sampled_from(sorted(AXES)))
            n = self.number()
            read = text.format(field=AXES[axis], n=n)
            befores += [before.format(n=n)] if before else []
            place = place.replace("@", f"⟦{category} {axis}|{read}⟧", 1)
            self.wanted += 1
        if place.startswith("return"):
            place = f"if flag:\n    {place}"  # so that what follows is still run
        return "\n".join([*befores, place])


@st.composite
def programs(draw: st.DrawFn) -> tuple[str, int]:
    writer = Writer(draw)
    body = writer.body(draw(st.integers(0, 4)))
    head = "class Scheduler:\n    def run(self, server_args, model_runner, x, flag):\n"
    return f"{head}        self._parked = server_args\n{indent(body, ' ' * 8)}\n", writer.wanted


@settings(max_examples=400, deadline=None)
@given(programs())
def test_every_planted_read_is_found_and_nothing_else(program: tuple[str, int]) -> None:
    marked, wanted = program
    source, promised = unmarked(marked)
    compile(source, "engine.py", "exec")
    found = found_in(source)
    assert len(promised) == wanted
    assert sorted(found) == sorted(promised)
    assert [each[2:] for each in found] == sorted(each[2:] for each in found)
