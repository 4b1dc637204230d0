"""Index tensors of one step, made once from a `Batch` and used by every layer.

A step writes the new tokens' KV, then reads. What to write and where is the same in both modes; DECODE reads
the rows that this rank holds of each sequence, EXTEND gathers the prefixes of all sequences from the DCP
group. Torch attention is told each row and who must not see it, paged attention just page tables and lengths.
Indices are clamped to allocated pages or the dummy row: a wrong length or owner (which only a fault
produces) then reads a wrong row, as it would on a GPU, instead of ending the process.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from harness.refengine.batch import Batch, ForwardMode
from harness.refengine.kv_pool import DUMMY_ROW
from harness.refengine.layout_seams import (
    local_kv_len,
    physical_row,
    rotary_positions,
    shard_position,
    token_owner,
)
from harness.refengine.seams import seam
from harness.topology import KVLayout

# Names of the seams, for those who patch them.
WRITE_ROWS = "write-rows"
PREFIX_ORDER = "prefix-order"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeReads:
    """This rank's rows of each sequence [B, L]; `padding` [B, L] is True where a row is not its token."""

    rows: Tensor
    padding: Tensor

    def to(self, device: torch.device) -> DecodeReads:
        """The same on `device`; free where it is there already."""
        return DecodeReads(rows=self.rows.to(device), padding=self.padding.to(device))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtendReads:
    """Prefix and mask of packed sequences.

    `send_rows` [n] are this rank's rows of all prefixes, equally many on every rank. `order` [prefix tokens]
    picks from the gathered [dcp·n] rows, so that the prefix tokens stand in sequence and position order; the
    new tokens follow them as keys. `hidden` [new tokens, prefix tokens + new tokens] is True where a query
    must not look.
    """

    send_rows: Tensor
    order: Tensor
    hidden: Tensor

    def to(self, device: torch.device) -> ExtendReads:
        """The same on `device`; free where it is there already."""
        return ExtendReads(
            send_rows=self.send_rows.to(device), order=self.order.to(device), hidden=self.hidden.to(device)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedReads:
    """This rank's tokens of each sequence: its page table [B, P], and how many there are, `lens` [B].

    Token n of sequence b lies in row `table[b, n // page_size] * page_size + n % page_size`.
    """

    table: Tensor
    lens: Tensor

    def to(self, device: torch.device) -> PagedReads:
        """The same on `device`; free where it is there already."""
        return PagedReads(table=self.table.to(device), lens=self.lens.to(device))


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedReads:
    """Prefixes and new tokens of packed sequences; `send_rows` and `order` are those of `ExtendReads`.

    Sequence s has new tokens `new_ends[s]` to `new_ends[s + 1]`, and prefix tokens likewise by `prefix_ends`;
    `longest` is the most new tokens of one.
    """

    send_rows: Tensor
    order: Tensor
    new_ends: Tensor
    prefix_ends: Tensor
    longest: int

    def to(self, device: torch.device) -> PackedReads:
        """The same on `device`; free where it is there already."""
        return PackedReads(
            send_rows=self.send_rows.to(device),
            order=self.order.to(device),
            new_ends=self.new_ends.to(device),
            prefix_ends=self.prefix_ends.to(device),
            longest=self.longest,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """One step on one rank. T counts new tokens; `logit_tokens` index those whose logits are asked for.

    `rotary` are the positions that queries and keys turn by.
    """

    tokens: Tensor
    rotary: Tensor
    write_rows: Tensor
    tags: Tensor
    logit_tokens: Tensor
    reads: DecodeReads | ExtendReads | PagedReads | PackedReads

    def to(self, device: torch.device) -> StepPlan:
        """The same on `device`; free where it is there already."""
        return StepPlan(
            tokens=self.tokens.to(device),
            rotary=self.rotary.to(device),
            write_rows=self.write_rows.to(device),
            tags=self.tags.to(device),
            logit_tokens=self.logit_tokens.to(device),
            reads=self.reads.to(device),
        )


def make_step_plan(batch: Batch, layout: KVLayout, rank: int, *, paged: bool = False) -> StepPlan:
    """Plan `batch` for DCP rank `rank`; it holds at least one chunk, and the pages cover each.

    `paged` says for which attention: reads are `PagedReads` or `PackedReads`, else `DecodeReads` or `ExtendReads`.
    """
    table = _page_table(batch)
    starts, counts, indices = torch.tensor(
        [(chunk.start, len(chunk.tokens), chunk.index) for chunk in batch.chunks]
    ).unbind(1)
    tokens = torch.tensor([token for chunk in batch.chunks for token in chunk.tokens])
    sequences, offsets = _ragged(counts)
    positions = starts[sequences] + offsets
    slots = _slots(layout, table, sequences, positions)
    reads: DecodeReads | ExtendReads | PagedReads | PackedReads
    if batch.mode is ForwardMode.DECODE:
        decode = _paged_reads if paged else _decode_reads
        reads = decode(layout, rank, table, starts + 1)
    else:
        send_rows, order = _prefix(layout, rank, table, starts)
        if paged:
            reads = _packed_reads(send_rows, order, starts=starts, counts=counts)
        else:
            hidden = _hidden(starts, sequences=sequences, positions=positions)
            reads = ExtendReads(send_rows=send_rows, order=order, hidden=hidden)
    return StepPlan(
        tokens=tokens,
        rotary=rotary_positions(layout, positions, batch.mode),
        write_rows=write_rows(layout, rank, positions=positions, slots=slots),
        tags=torch.stack([indices[sequences], positions, tokens], dim=1),
        logit_tokens=_logit_tokens(batch, counts),
        reads=reads,
    )


@seam(WRITE_ROWS)
def write_rows(layout: KVLayout, rank: int, *, positions: Tensor, slots: Tensor) -> Tensor:
    """Row that each new token is written to on DCP rank `rank`: the dummy for tokens that others own."""
    owned = token_owner(layout, positions) == rank
    return torch.where(owned, physical_row(layout, slots), DUMMY_ROW)


@seam(PREFIX_ORDER)
def prefix_order(layout: KVLayout, *, sent: Tensor, sequences: Tensor, positions: Tensor) -> Tensor:
    """Where each prefix token stands among the gathered rows, which come rank by rank, of each rank `sent`
    rows of every sequence; a token is given by its sequence and its position in it."""
    owners = token_owner(layout, positions).clamp(0, layout.dcp_size - 1)
    # Tokens are dense on their owner: a position's place there is the row it would have in a pool of its own.
    place = torch.minimum(layout.row(positions), sent[sequences] - 1)
    return owners * sent.sum() + (sent.cumsum(0) - sent)[sequences] + place


def _page_table(batch: Batch) -> Tensor:
    """[B, longest] logical page ids, padded with the dummy page 0."""
    longest = max(len(chunk.pages) for chunk in batch.chunks)
    return torch.tensor([chunk.pages + (0,) * (longest - len(chunk.pages)) for chunk in batch.chunks])


def _ragged(counts: Tensor) -> tuple[Tensor, Tensor]:
    """For items packed sequence by sequence: the sequence of each, and its offset in it."""
    sequences = torch.repeat_interleave(counts)
    first = counts.cumsum(0) - counts
    return sequences, torch.arange(len(sequences)) - first[sequences]


def _slots(layout: KVLayout, table: Tensor, sequences: Tensor | slice, positions: Tensor) -> Tensor:
    """Logical slot of each position of each sequence: its page, widened, plus its place in it."""
    wide = layout.widened_page_size
    page = (positions // wide).clamp(max=table.shape[1] - 1)
    return table[sequences, page] * wide + positions % wide


def _decode_reads(layout: KVLayout, rank: int, table: Tensor, lengths: Tensor) -> DecodeReads:
    lens = local_kv_len(layout, lengths, rank)
    # At least one column, so that a rank without any token still has shapes to compute with.
    nth = torch.arange(max(1, int(lens.max())))
    slots = _slots(layout, table, slice(None), shard_position(layout, nth, rank))
    return DecodeReads(rows=physical_row(layout, slots), padding=nth >= lens[:, None])


def _paged_reads(layout: KVLayout, rank: int, table: Tensor, lengths: Tensor) -> PagedReads:
    lens = local_kv_len(layout, lengths, rank)
    return PagedReads(table=table, lens=lens.clamp(0, table.shape[1] * layout.page_size))


def _prefix(layout: KVLayout, rank: int, table: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
    """Rows that this rank sends of all prefixes, and where each prefix token stands among those gathered."""
    # Rank 0 holds the most of any prefix, so its lengths give every rank the same number of rows to send.
    sent = torch.tensor([layout.local_len(start, 0) for start in starts.tolist()])
    send_sequences, nth = _ragged(sent)
    send_positions = shard_position(layout, nth, rank)
    send_rows = physical_row(layout, _slots(layout, table, send_sequences, send_positions))
    sequences, positions = _ragged(starts)
    return send_rows, prefix_order(layout, sent=sent, sequences=sequences, positions=positions)


def _hidden(starts: Tensor, *, sequences: Tensor, positions: Tensor) -> Tensor:
    prefix_sequences, prefix_positions = _ragged(starts)
    key_sequences = torch.cat([prefix_sequences, sequences])
    key_positions = torch.cat([prefix_positions, positions])
    visible = (key_sequences == sequences[:, None]) & (key_positions <= positions[:, None])
    return ~visible


def _packed_reads(send_rows: Tensor, order: Tensor, *, starts: Tensor, counts: Tensor) -> PackedReads:
    return PackedReads(
        send_rows=send_rows,
        order=order,
        new_ends=_ends(counts),
        prefix_ends=_ends(starts),
        longest=int(counts.max()),
    )


def _ends(counts: Tensor) -> Tensor:
    """Where each of packed sequences ends, after a 0: so sequence s begins at ends[s]."""
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def _logit_tokens(batch: Batch, counts: Tensor) -> Tensor:
    """Indices among the new tokens: all of a chunk with `all_logits`, else its last."""
    ends = counts.cumsum(0).tolist()
    wanted: list[int] = []
    for chunk, end in zip(batch.chunks, ends, strict=True):
        wanted.extend(range(end - len(chunk.tokens), end) if chunk.all_logits else (end - 1,))
    return torch.tensor(wanted)
