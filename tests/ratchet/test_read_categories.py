"""Every way to read topology past its source is found, once, where an editor would open it."""

from __future__ import annotations

import pytest
from planted import found_in, sites_of, unmarked

DIRECT = {
    "name": "def f(server_args): return ⟦direct dcp|server_args.dcp_size⟧",
    "attribute": "class A:\n    def f(self): return ⟦direct tp|self.server_args.tp_size⟧",
    "deep attribute": "def f(x): return ⟦direct pp|x.model_runner.server_args.pp_size⟧",
    "getter": "y = ⟦direct dcp|get_server_args().dcp_size⟧",
    "old getter": "y = ⟦direct moe_dp|get_global_server_args().moe_dp_size⟧",
    "getter of a module": "y = ⟦direct dcp|context.get_server_args().dcp_size⟧",
    "getter imported as": "from context import get_server_args as gsa\ny = ⟦direct dcp|gsa().dcp_size⟧",
    "kept in a local": "def f(server_args):\n    dcp = ⟦direct dcp|server_args.dcp_size⟧\n    return dcp * dcp",
    "f-string": 'def f(server_args): return f"é {⟦direct dcp|server_args.dcp_size⟧:>3}"',
    "f-string twice": (
        'def f(server_args): return f"{⟦direct dcp|server_args.dcp_size⟧} {⟦direct dcp|server_args.dcp_size⟧}"'
    ),
    "f-string of lines": (
        'def f(server_args):\n    return f"""\n  {⟦direct dcp|server_args.dcp_size⟧}\n'
        '{⟦direct tp|server_args.tp_size⟧}"""'
    ),
    "keyword argument": "def f(server_args): g(dcp_size=⟦direct dcp|server_args.dcp_size⟧)",
    "behind é": "def f(server_args): return 'éé', ⟦direct dcp|server_args.dcp_size⟧",
    "over lines": "def f(server_args):\n    return (⟦direct dcp|server_args\n        .dcp_size⟧)",
    "default of a parameter": "def f(server_args):\n    def g(n=⟦direct dcp|server_args.dcp_size⟧): pass",
    "decorator": "def f(server_args):\n    @needs(⟦direct dcp|server_args.dcp_size⟧)\n    def g(): pass",
    "class body": "def f(server_args):\n    class A:\n        n = ⟦direct dcp|server_args.dcp_size⟧",
    "lambda": "def f(server_args): return lambda: ⟦direct dcp|server_args.dcp_size⟧",
    "closure": "def f(server_args):\n    def g(): return ⟦direct dcp|server_args.dcp_size⟧\n    return g",
    "comprehension": "def f(server_args): return [i for i in range(⟦direct dcp|server_args.dcp_size⟧)]",
    "comprehension condition": (
        "def f(server_args, a): return {i for i in a if i % ⟦direct dcp|server_args.dcp_size⟧}"
    ),
    "augmented": "def f(server_args):\n    ⟦direct dcp|server_args.dcp_size⟧ += 1",
    "index of a store": "def f(server_args, a): a[⟦direct dcp|server_args.dcp_size⟧] = 1",
    "deleted index": "def f(server_args, a): del a[⟦direct dcp|server_args.dcp_size⟧]",
    "async": "async def f(server_args): return await g(⟦direct dcp|server_args.dcp_size⟧)",
    "starred": (
        "def f(server_args): g(*[⟦direct dcp|server_args.dcp_size⟧], **{'a': "
        "⟦direct tp|server_args.tp_size⟧})"
    ),
    "case value": (
        "def f(server_args, x):\n    match x:\n        case ⟦direct dcp|server_args.dcp_size⟧: return 1"
    ),
    "case guard": (
        "def f(server_args, x):\n    match x:\n        case _ if ⟦direct dcp|server_args.dcp_size⟧: return 1"
    ),
    "while": "def f(server_args):\n    while ⟦direct dcp|server_args.dcp_size⟧: pass",
    "finally": "def f(server_args):\n    try: g()\n    finally: g(⟦direct dcp|server_args.dcp_size⟧)",
    "copied object": (
        "def f(server_args):\n    server_args = copy.copy(server_args)\n"
        "    return ⟦direct dcp|server_args.dcp_size⟧"
    ),
    "optional annotation": (
        "def f(server_args: 'ServerArgs | None' = None): return ⟦direct dcp|server_args.dcp_size⟧"
    ),
    "bound by a call": (
        "def f():\n    server_args = prepare(argv)\n    return ⟦direct dcp|server_args.dcp_size⟧"
    ),
    "after None": "server_args = None\ndef f():\n    return ⟦direct dcp|server_args.dcp_size⟧",
    "rebound in one branch": (
        "def f(server_args, c):\n    if c:\n        server_args = {}\n"
        "    return ⟦direct dcp|server_args.dcp_size⟧"
    ),
    "either": "def f(server_args): return ⟦direct dcp|(server_args or get_server_args()).dcp_size⟧",
    "made": "y = ⟦direct dcp|ServerArgs.from_cli_args(a).dcp_size⟧",
    "getattr of the object": "def f(r): return ⟦direct dcp|getattr(r, 'server_args').dcp_size⟧",
}
ALIASED = {
    "local": "def f(self):\n    args = self.server_args\n    return ⟦aliased dcp|args.dcp_size⟧",
    "from a getter": "def f():\n    sa = get_global_server_args()\n    return ⟦aliased dcp|sa.dcp_size⟧",
    "tuple": (
        "def f(self):\n    n, (args, m) = 1, (self.server_args, 2)\n    return ⟦aliased dcp|args.dcp_size⟧"
    ),
    "default": "def f(server_args):\n    def g(s=server_args): return ⟦aliased dcp|s.dcp_size⟧",
    "keyword default": "def f(self):\n    def g(*, a=1, s=self.server_args): return ⟦aliased dcp|s.dcp_size⟧",
    "default after others": "def f(server_args):\n    def g(a, b, s=server_args): return ⟦aliased tp|s.tp_size⟧",
    "default of a lambda": "def f(server_args): return lambda s=server_args: ⟦aliased dcp|s.dcp_size⟧",
    "walrus": "def f(self): return ⟦aliased dcp|(args := self.server_args).dcp_size⟧",
    "walrus before": "def f(self):\n    if (a := self.server_args) and ⟦aliased dcp|a.dcp_size⟧: pass",
    "walrus in a comprehension": (
        "def f(s):\n    [(a := s.server_args) for _ in g()]\n    return ⟦aliased dcp|a.dcp_size⟧"
    ),
    "annotated parameter": "def f(args: ServerArgs): return ⟦aliased tp|args.tp_size⟧",
    "quoted annotation": "def f(args: 'Optional[srt.ServerArgs]'): return ⟦aliased tp|args.tp_size⟧",
    "keyword-only parameter": "def f(*, a: ServerArgs): return ⟦aliased tp|a.tp_size⟧",
    "annotated local": "def f(x):\n    a: ServerArgs = x\n    return ⟦aliased tp|a.tp_size⟧",
    "attribute": (
        "class A:\n    def __init__(self, server_args): self._args = server_args\n"
        "    def f(self): return ⟦aliased dcp|self._args.dcp_size⟧"
    ),
    "attribute read above": (
        "class A:\n    def f(self): return ⟦aliased dcp|self._a.dcp_size⟧\n"
        "    def __init__(self, server_args): self._a = server_args"
    ),
    "attribute of an attribute": (
        "class A:\n    def __init__(self, server_args): self._a = server_args\n"
        "    def g(self): self._b = self._a\n    def f(self): return ⟦aliased dcp|self._b.dcp_size⟧"
    ),
    "inherited attribute": (
        "class A:\n    def __init__(self, server_args): self._a = server_args\n"
        "class B(A):\n    def f(self): return ⟦aliased dcp|self._a.dcp_size⟧"
    ),
    "field of a dataclass": (
        "class A:\n    a: ServerArgs\n    def f(self): return ⟦aliased dcp|self.a.dcp_size⟧"
    ),
    "module": "sa = get_server_args()\ndef f(): return ⟦aliased dcp|sa.dcp_size⟧",
    "global": "def g():\n    global sa\n    sa = get_server_args()\ndef f(): return ⟦aliased dcp|sa.dcp_size⟧",
    "global read first": (
        "sa = get_server_args()\ndef f():\n    global sa\n    x = ⟦aliased dcp|sa.dcp_size⟧\n    sa = None"
    ),
    "nonlocal": (
        "def f(s):\n    a = None\n    def g():\n        nonlocal a\n        a = s.server_args\n"
        "    def h(): return ⟦aliased dcp|a.dcp_size⟧"
    ),
    "copy of an alias": "def f(s):\n    a = s.server_args\n    b = a\n    return ⟦aliased dcp|b.dcp_size⟧",
    "one branch": (
        "def f(s, c):\n    a = {}\n    if c:\n        a = s.server_args\n    return ⟦aliased dcp|a.dcp_size⟧"
    ),
    "a round later": (
        "def f(s, n):\n    a = None\n    for _ in n:\n"
        "        ⟦aliased dcp|a.dcp_size⟧\n        a = s.server_args"
    ),
    "after an error": (
        "def f(s):\n    a = {}\n    try:\n        a = s.server_args\n        g()\n"
        "    except E:\n        ⟦aliased dcp|a.dcp_size⟧"
    ),
    "with": "def f(s):\n    with use(s) as t, s.server_args as a: ⟦aliased dcp|a.dcp_size⟧",
    "replaced": (
        "def f(s):\n    a = dataclasses.replace(s.server_args, x=1)\n    return ⟦aliased dcp|a.dcp_size⟧"
    ),
    "constructed": "def f():\n    a = ServerArgs(model_path='m')\n    return ⟦aliased dcp|a.dcp_size⟧",
    "either of two": "def f(s, c):\n    a = s.server_args if c else None\n    return ⟦aliased dcp|a.dcp_size⟧",
}
DEFENSIVE = {
    "getattr": "def f(server_args): return ⟦defensive dcp|getattr(server_args, 'dcp_size', 1)⟧",
    "no default": "def f(server_args): return ⟦defensive dcp|getattr(server_args, 'dcp_size')⟧",
    "hasattr": "def f(s): return ⟦defensive tp|hasattr(s.server_args, 'tp_size')⟧",
    "runner": "def f(model_runner): return ⟦defensive dcp|getattr(model_runner, 'dcp_size', 1)⟧ > 1",
    "state": "def f(self): return ⟦defensive dcp|getattr(self.ps, 'attn_dcp_size', 1)⟧",
    "live": "y = ⟦defensive dcp|getattr(get_parallel(), 'dcp_rank', 0)⟧",
    "alias": "def f(s):\n    a = s.server_args\n    return ⟦defensive dcp|getattr(a, 'dcp_size', 1)⟧",
    "a worker itself": "class TpWorker:\n    def f(self): return ⟦defensive dcp|getattr(self, 'dcp_size', 1)⟧",
    "state under another name": (
        "def f(state: ParallelState): return ⟦defensive dcp|hasattr(state, 'attn_dcp_size')⟧"
    ),
}
COPIED = {
    "from server args": (
        "class ModelRunner:\n    def __init__(self, server_args):\n"
        "        self.dcp_size = ⟦copied dcp|server_args.dcp_size⟧"
    ),
    "from live topology": (
        "class A:\n    def __init__(self, ps):\n        self.ps = ps\n"
        "        self.dcp_size = ⟦copied dcp|get_parallel().attn_dcp_size⟧\n"
        "        self.dcp_rank = ⟦copied dcp|get_parallel().attn_dcp_rank⟧"
    ),
    "from a live call": (
        "class A:\n    ps: ParallelState\n    def f(self):\n"
        "        self.n = ⟦copied tp|get_tensor_model_parallel_world_size()⟧"
    ),
    "through a local": (
        "class TpWorker:\n    def f(self):\n        n = ⟦copied dcp|self.server_args.dcp_size⟧\n"
        "        self.n = n"
    ),
    "through a live local": (
        "class TpWorker:\n    def f(self):\n        p = get_parallel()\n"
        "        self.n = ⟦copied dcp|p.attn_dcp_size⟧"
    ),
    "defensive": (
        "class A(BaseRunner):\n    def f(self): self.n = "
        "⟦copied dcp|getattr(self.server_args, 'dcp_size', 1)⟧"
    ),
    "pairwise": (
        "class TpWorker:\n    def f(self, server_args):\n"
        "        self.a, self.b = ⟦copied dcp|server_args.dcp_size⟧, ⟦copied tp|server_args.tp_size⟧"
    ),
    "by another": "def f(model_runner, server_args): model_runner.dcp_size = ⟦copied dcp|server_args.dcp_size⟧",
    "annotated": "class TpWorker:\n    def f(self): self.n: int = ⟦copied dcp|self.server_args.dcp_size⟧",
    "as a number": (
        "class TpWorker:\n    def f(self): self.n = max(1, int(⟦copied dcp|self.server_args.dcp_size⟧))"
    ),
    "if given": (
        "class TpWorker:\n    def f(self, c): self.n = ⟦copied dcp|self.server_args.dcp_size⟧ if c else 1"
    ),
    "by a subclass": (
        "class A:\n    def __init__(self, ps): self.ps = ps\n"
        "class B(A):\n    def f(self): self.n = ⟦copied dcp|self.server_args.dcp_size⟧"
    ),
}
EARLY = {
    "above": (
        "class A:\n    def __init__(self):\n        x = ⟦early dcp|get_parallel().attn_dcp_size⟧\n"
        "        self.init_torch_distributed()\n        y = get_parallel().attn_dcp_size"
    ),
    "in its argument": (
        "class A:\n    def __init__(self):\n        initialize_model_parallel("
        "⟦early dcp|get_parallel().dcp_size⟧)"
    ),
    "by a local": (
        "class A:\n    def __init__(self):\n        p = get_parallel()\n"
        "        if ⟦early tp|p.tp_size⟧ > 1: pass\n"
        "        self.init_torch_distributed()"
    ),
    "kept": (
        "class TpWorker:\n    def __init__(self):\n        self.n = ⟦early dcp|get_parallel().attn_dcp_size⟧\n"
        "        self.init_torch_distributed()"
    ),
    "by call": (
        "class A:\n    def __init__(self):\n        n = ⟦early dcp|get_dcp_rank()⟧\n"
        "        init_torch_distributed(self)"
    ),
}
ALL = {
    f"{group}: {name}": source
    for group, cases in (
        ("direct", DIRECT),
        ("aliased", ALIASED),
        ("defensive", DEFENSIVE),
        ("copied", COPIED),
        ("early", EARLY),
    )
    for name, source in cases.items()
}


@pytest.mark.parametrize("name", ALL)
def test_a_planted_read_is_found_where_it_stands(name: str) -> None:
    source, promised = unmarked(ALL[name])
    assert promised, "the case plants nothing"
    assert found_in(source) == promised


@pytest.mark.parametrize("name", ALL)
def test_what_is_found_opens_at_the_expression(name: str) -> None:
    """The text at the place begins with the very expression that is reported."""
    source, _ = unmarked(ALL[name])
    lines = source.split("\n")
    for site in sites_of(source):
        there = lines[site.line - 1][site.column - 1 :]
        first = site.expression.split(".")[0].split("(")[0]
        assert there.lstrip("(").startswith(first.lstrip("("))


def test_a_local_that_is_kept_and_used_is_one_site() -> None:
    source, promised = unmarked(
        """
        class TpWorker:
            def __init__(self, server_args):
                dcp = ⟦copied dcp|server_args.dcp_size⟧
                self.dcp = dcp
                self.again = dcp
                print(dcp)
        """
    )
    assert found_in(source) == promised


def test_a_site_names_its_function_and_what_it_is_kept_as() -> None:
    source = (
        "class ModelRunner:\n    def __init__(self, server_args):\n        self.n = server_args.dcp_size\n"
    )
    (site,) = sites_of(source)
    assert site.function == "ModelRunner.__init__"
    assert site.words == "server_args.dcp_size kept as self.n"
    assert site.instead == "ps.attn_dcp_size where it is used, and no copy"
