"""The boundary that `caps` lays out page by page against the rule that admission computes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness.checks.caps import longest_fitting
from harness.engines import ServerInfo
from harness.topology import Capacity, KVLayout, request_fits


def info(*, page_size: int, dcp_size: int, total: int) -> ServerInfo:
    return ServerInfo(
        max_total_num_tokens=total,
        tp_size=dcp_size,
        dcp_size=dcp_size,
        page_size=page_size,
        interleave=1,
        dcp_comm_backend="ag_rs",
        nonce="",
        running=0,
        waiting=0,
        context_length=None,
        capped_by_argument=False,
        ranks=None,
        raw={},
    )


@given(
    page_size=st.integers(1, 20),
    dcp_size=st.sampled_from([1, 2, 4, 8]),
    pages=st.integers(1, 40),
    new=st.integers(1, 50),
)
def test_the_boundary_is_admissions(page_size: int, dcp_size: int, pages: int, new: int) -> None:
    layout = KVLayout(dcp_size=dcp_size, page_size=page_size)
    capacity = Capacity(rows_per_rank=pages * page_size, dcp_size=dcp_size)
    total = capacity.max_total_num_tokens
    longest = longest_fitting(info(page_size=page_size, dcp_size=dcp_size, total=total), max_new_tokens=new)
    fitting = [
        n
        for n in range(1, total + 2)
        if request_fits(layout=layout, capacity=capacity, input_len=n, max_new_tokens=new)
    ]
    assert longest == max(fitting, default=0)
