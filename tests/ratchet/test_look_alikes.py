"""What looks like a topology read and is none is not reported."""

from __future__ import annotations

import pytest
from planted import found_in

LOOK_ALIKES = {
    "another object": "def f(other): return other.dcp_size",
    "a string": "x = 'server_args.dcp_size'",
    "a docstring": 'def f():\n    """server_args.dcp_size is read by others."""',
    "a comment": "x = 1  # server_args.dcp_size, getattr(server_args, 'dcp_size', 1)",
    "a dict of that name": "def f():\n    server_args = {}\n    return server_args.dcp_size",
    "a dict made": "def f(x):\n    server_args = dict(vars(x))\n    return server_args.dcp_size",
    "a namespace": "def f():\n    server_args = SimpleNamespace(dcp_size=1)\n    return server_args.dcp_size",
    "another class made": "def f():\n    server_args = PortArgs.new()\n    return 1",
    "a dict parameter": "def f(server_args: dict): return server_args.dcp_size",
    "another type": "def f(server_args: RouterArgs): return server_args.dcp_size",
    "a container of them": "def f(a: list[ServerArgs]): return a.dcp_size",
    "the class itself": "def f(a: type[ServerArgs]): return a.dcp_size",
    "a default that is another object": "def f(server_args):\n    def g(s=other): return s.dcp_size",
    "a default beside": "def f(server_args):\n    def g(s, a=server_args): return s.dcp_size",
    "a default of another type": "def f(x):\n    def g(s: RouterArgs = x.server_args): return s.dcp_size",
    "a keyword argument": "f(dcp_size=1, tp_size=n)",
    "a store": "def f(server_args): server_args.dcp_size = 4",
    "a store in a tuple": "def f(server_args): server_args.dcp_size, x = 4, 5",
    "an annotated store": "def f(server_args): server_args.dcp_size: int = 4",
    "a loop over a store": "def f(server_args):\n    for server_args.dcp_size in (1, 2): pass",
    "del": "def f(server_args): del server_args.dcp_size",
    "a declaration": "class ServerArgs:\n    dcp_size: int = 1\n    tp_size: int = 1",
    "the class attribute": "x = ServerArgs.dcp_size",
    "a dataclass field": (
        "@dataclass\nclass A:\n    server_args: ServerArgs\n    dcp_size: int = field(default=1)"
    ),
    "a method": "class A:\n    def dcp_size(self): return 1\n    def f(self): return self.dcp_size()",
    "a property": (
        "class A:\n    @property\n    def dcp_size(self): return 1\n    @dcp_size.setter\n"
        "    def dcp_size(self, n): ..."
    ),
    "a config": "def f(config): return config.tp_size",
    "an unrelated attribute": (
        "class Pool:\n    def __init__(self, dcp_size): self.dcp_size = dcp_size\n"
        "    def f(self): return self.dcp_size"
    ),
    "another name in getattr": "def f(server_args): return getattr(server_args, 'dcp_sizes', 1)",
    "getattr of another": "def f(layer): return getattr(layer, 'tp_size', 1)",
    "getattr by variable": "def f(server_args, name): return getattr(server_args, name)",
    "setattr": "def f(server_args): setattr(server_args, 'dcp_size', 2)",
    "a getattr of one's own": "def f(server_args, getattr): return getattr(server_args, 'dcp_size')",
    "another field": "def f(server_args): return server_args.page_size",
    "a longer field": "def f(server_args): return server_args.dcp_size_limit",
    "shadowed by a local": "sa = get_server_args()\ndef f():\n    sa = g()\n    return sa.dcp_size",
    "shadowed by a parameter": "sa = get_server_args()\ndef f(sa): return sa.dcp_size",
    "shadowed by a lambda": "sa = get_server_args()\nf = lambda sa: sa.dcp_size",
    "local to another function": "def f(s):\n    a = s.server_args\ndef g(a): return a.dcp_size",
    "local to a nested function": "def f(s):\n    def g():\n        a = s.server_args\n    return a.dcp_size",
    "a comprehension's own": "def f(server_args, all): return [server_args.dcp_size for server_args in all]",
    "a comprehension's alias": "def f(s, x):\n    a = s.server_args\n    return [a.dcp_size for a in x]",
    "a loop variable": "def f(all):\n    for server_args in all: server_args.dcp_size",
    "a class body's name": "class A:\n    sa = get_server_args()\n    def f(self): return sa.dcp_size",
    "rebound before": "def f(server_args, other):\n    server_args = other\n    return server_args.dcp_size",
    "rebound alias": "def f(s):\n    a = s.server_args\n    a = s.config\n    return a.dcp_size",
    "rebound in both branches": (
        "def f(server_args, c):\n    if c:\n        server_args = {}\n    else:\n        server_args = []\n"
        "    return server_args.dcp_size"
    ),
    "the branch that bound it left": (
        "def f(s, a, c):\n    if c:\n        a = s.server_args\n        return a\n    return a.dcp_size"
    ),
    "deleted": "def f(server_args):\n    del server_args\n    return server_args.dcp_size",
    "a file": "def f(x):\n    with open(x) as server_args: return server_args.dcp_size",
    "an exception": "def f():\n    try: g()\n    except E as server_args: return server_args.dcp_size",
    "a pattern's name": (
        "def f(x):\n    match x:\n        case {'a': server_args}: return server_args.dcp_size"
    ),
    "an imported module": "from srt import server_args\nx = server_args.dcp_size",
    "a function of that name": "def server_args(): ...\nx = server_args.dcp_size",
    "a getter of one's own": (
        "def f(get_server_args=None):\n    get_server_args = {}.get\n    return get_server_args().dcp_size"
    ),
    "an attribute that is a dict": (
        "class A:\n    def __init__(self): self.server_args = {}\n    def f(self): return self.server_args.dcp_size"
    ),
    "an attribute of another class": (
        "class A:\n    def __init__(self, server_args): self._a = server_args\n"
        "class B:\n    def f(self): return self._a.dcp_size"
    ),
    "a static method's first parameter": (
        "class A:\n    def __init__(self, server_args): self._a = server_args\n"
        "    @staticmethod\n    def f(x): return x._a.dcp_size"
    ),
    "type annotations": (
        "def f(a: server_args.dcp_size) -> server_args.dcp_size:\n    b: server_args.dcp_size"
    ),
    "only for the type checker": "if TYPE_CHECKING:\n    x = get_server_args().dcp_size",
    "only for the checker of typing": "if typing.TYPE_CHECKING:\n    x = get_server_args().dcp_size",
    "argparse": (
        "def f(parser):\n    parser.add_argument('--dcp-size', dest='dcp_size')\n"
        "    args = parser.parse_args()\n    return args.dcp_size"
    ),
    "the state": (
        "class A:\n    def __init__(self, ps): self.ps = ps\n    def f(self): return self.ps.attn_dcp_size"
    ),
    "live topology": "def f(): return get_parallel().attn_dcp_size",
    "a copy in another class": (
        "class Backend:\n    def __init__(self): self.dcp_size = get_parallel().attn_dcp_size"
    ),
    "a copy of the state": "class TpWorker:\n    def __init__(self, ps): self.n = ps.attn_dcp_size",
    "something computed": "class TpWorker:\n    def f(self): self.n = get_parallel().attn_dcp_size * 2",
    "after the initialisation": (
        "class A:\n    def __init__(self):\n        self.init_torch_distributed()\n"
        "        x = get_parallel().dcp_size"
    ),
    "no initialisation": "class A:\n    def __init__(self): x = get_parallel().dcp_size",
    "no constructor": (
        "class A:\n    def f(self):\n        x = get_parallel().dcp_size\n"
        "        self.init_torch_distributed()"
    ),
    "a function in a constructor": (
        "class A:\n    def __init__(self):\n        f = lambda: get_parallel().dcp_size\n"
        "        def g(): return get_parallel().dcp_size\n        self.init_torch_distributed()"
    ),
    "an initialisation in a nested function": (
        "class A:\n    def __init__(self):\n        x = get_parallel().dcp_size\n"
        "        def g(): init_torch_distributed()"
    ),
    "an argument of the state": "def f(server_args): return ParallelState(tp_rank=3 % server_args.dcp_size)",
    "an argument of an initialisation": "def f(s): init_distributed_environment(s.server_args.tp_size)",
    "an argument of a set-up call": (
        "def f(server_args):\n    a = compute_dp_attention_world_info(0, server_args.tp_size)"
    ),
    "a constructor's seed": (
        "class A:\n    def __init__(self, ps):\n        n = ps.dcp_size\n        init_torch_distributed()"
    ),
}


@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_a_look_alike_is_not_reported(name: str) -> None:
    assert found_in(LOOK_ALIKES[name]) == []


def test_what_stands_beside_a_set_up_call_is_found() -> None:
    source = """
def f(server_args):
    ps = ParallelState(dcp_size=server_args.dcp_size)
    return server_args.tp_size, ParallelState(tp_size=getattr(server_args, "tp_size", 1))
"""
    assert found_in(source) == [("direct", "tp", 4, 12), ("defensive", "tp", 4, 55)]


def test_there_are_enough_of_them() -> None:
    assert len(LOOK_ALIKES) >= 30
