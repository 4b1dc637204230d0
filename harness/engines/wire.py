"""The JSON of SGLang's HTTP surface, as the reference engine speaks it, to and from `engines.base`. No I/O.

`/v1/completions` and `/v1/models` are OpenAI's and vLLM's too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.engines.base import (
    Answer,
    Completion,
    GenerateRequest,
    HeldRow,
    InFlight,
    KVRows,
    PairInfo,
    RankInfo,
    RankRows,
    RankTransfer,
    ServerInfo,
)
from harness.errors import EngineError, RequestRefusedError


def generate_body(requests: list[GenerateRequest]) -> dict[str, Any]:
    """The `/generate` body of one request, or of several sent as one batch."""
    params = [
        {"max_new_tokens": r.max_new_tokens, "temperature": r.temperature, "ignore_eos": True}
        for r in requests
    ]
    starts = [0 if r.prompt_logprobs else len(r.input_ids) for r in requests]
    if len(requests) == 1:
        return {
            "input_ids": list(requests[0].input_ids),
            "sampling_params": params[0],
            "return_logprob": True,
            "logprob_start_len": starts[0],
        }
    return {
        "input_ids": [list(r.input_ids) for r in requests],
        "sampling_params": params,
        "return_logprob": True,
        "logprob_start_len": starts,
    }


def parse_answer(body: dict[str, Any]) -> Answer:
    """One `/generate` answer. Raises EngineError where a part is missing: a short answer is not a pass."""
    try:
        meta = body["meta_info"]
        output = meta["output_token_logprobs"]
        prompt = meta.get("input_token_logprobs") or []
        return Answer(
            tokens=tuple(int(entry[1]) for entry in output),
            logprobs=tuple(float(entry[0]) for entry in output),
            prompt_logprobs=tuple(float(entry[0]) for entry in prompt if entry[0] is not None),
            finish_reason=str((meta["finish_reason"] or {}).get("type", "")),
            prompt_tokens=int(meta["prompt_tokens"]),
        )
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise EngineError(
            f"/generate answered without what was asked for: {error!r} in {body!r:.300}"
        ) from error


# The last line of a stream of events that was not broken off.
STREAM_END = "data: [DONE]"


def streamed_tokens(event: dict[str, Any]) -> int:
    """The tokens so far, by an event of a `/generate` stream; an error in it raises RequestRefusedError."""
    if error := event.get("error"):
        told = error if isinstance(error, dict) else {"message": error}
        raise RequestRefusedError(
            f"/generate: in its stream: {told.get('message', told)}", status=int(told.get("code", 500))
        )
    try:
        return int(event["meta_info"]["completion_tokens"])
    except (KeyError, TypeError, ValueError) as error:
        raise EngineError(
            f"/generate streamed an event without its count of tokens: {event!r:.300}"
        ) from error


def completion_body(
    prompt: str, *, model: str, max_new_tokens: int, stop: Sequence[str], temperature: float
) -> dict[str, Any]:
    """The `/v1/completions` body of one prompt. Without a model the field is left out, as is an empty `stop`."""
    body: dict[str, Any] = {"prompt": prompt, "max_tokens": max_new_tokens, "temperature": temperature}
    if stop:
        body["stop"] = list(stop)
    return {"model": model, **body} if model else body


def parse_completion(body: Any) -> Completion:
    """One `/v1/completions` answer. Raises EngineError where the text or the reason of its end is missing."""
    try:
        (choice,) = body["choices"]
        text, reason = choice["text"], choice["finish_reason"]
        if not isinstance(text, str) or not isinstance(reason, str):
            raise TypeError("text and finish_reason are strings")
        usage = body.get("usage") or {}
        return Completion(
            text=text,
            tokens=int(usage.get("completion_tokens") or 0),
            finish_reason=reason,
            prompt_tokens=int(usage.get("prompt_tokens") or 0),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise EngineError(
            f"/v1/completions answered without what was asked for: {error!r} in {body!r:.300}"
        ) from error


def first_model(body: Any) -> str:
    """The name that `/v1/models` lists first: what the engine was launched with; adapters come after it."""
    try:
        return str(body["data"][0]["id"])
    except (KeyError, TypeError, IndexError) as error:
        raise EngineError(f"/v1/models lists no model: {body!r:.300}") from error


def parse_server_info(body: dict[str, Any]) -> ServerInfo:
    """`/server_info` of the reference engine. An engine without per-rank proof has no `ranks`."""
    try:
        ranks = body.get("ranks")
        return ServerInfo(
            max_total_num_tokens=int(body["max_total_num_tokens"]),
            tp_size=int(body["tp_size"]),
            dcp_size=int(body.get("dcp_size", 1)),
            page_size=int(body["page_size"]),
            interleave=int(body.get("interleave", 1)),
            dcp_comm_backend=str(body.get("dcp_comm_backend", "")),
            nonce=str(body.get("nonce", "")),
            running=int(body.get("running", 0)),
            waiting=int(body.get("waiting", 0)),
            context_length=None if body.get("context_length") is None else int(body["context_length"]),
            capped_by_argument=body.get("max_total_tokens") is not None,
            ranks=None if ranks is None else tuple(_rank_info(rank) for rank in ranks),
            raw=body,
            # SGLang's word for it is the second one.
            model=str(body.get("model") or body.get("model_path") or ""),
            pair=_pair_info(body.get("pair")),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise EngineError(f"/server_info lacks what checks rely on: {error!r}") from error


def _pair_info(pair: dict[str, Any] | None) -> PairInfo | None:
    if pair is None:
        return None
    prefill, decode = (tuple(str(engine["url"]) for engine in pair[side]) for side in ("prefill", "decode"))
    return PairInfo(prefill=prefill, decode=decode)


def _rank_info(rank: dict[str, Any]) -> RankInfo:
    topology = rank["topology"]
    return RankInfo(
        tp_rank=int(rank["tp_rank"]),
        pid=int(rank["pid"]),
        attn_dcp_rank=int(topology["attn_dcp_rank"]),
        attn_dcp_size=int(topology["attn_dcp_size"]),
        dcp_group=tuple(topology["dcp_group"]),
        collectives={group: dict(kinds) for group, kinds in rank["collectives"].items()},
        kv_rows=int(rank["kv_rows"]),
        kv_rows_free=int(rank["kv_rows_free"]),
        kv_row_bytes=int(rank["kv_row_bytes"]),
        sources=rank.get("sources"),
        transfer=_rank_transfer(rank.get("transfer")),
    )


def _rank_transfer(told: dict[str, Any] | None) -> RankTransfer | None:
    """A prefill rank tells what it sent, a decode rank what it received."""
    if told is None:
        return None
    done, peers = ("sent", "to") if "bytes_sent" in told else ("received", "from")
    return RankTransfer(
        bytes=int(told[f"bytes_{done}"]),
        bytes_by_peer={int(rank): int(peer["bytes"]) for rank, peer in told[peers].items()},
    )


def parse_kv_rows(body: dict[str, Any]) -> KVRows:
    """`/kv_rows`: which token each physical row of each rank holds."""
    return KVRows(
        page_size=int(body["page_size"]),
        dcp_size=int(body["dcp_size"]),
        interleave=int(body["interleave"]),
        requests=tuple(
            InFlight(
                rid=request["rid"],
                index=int(request["index"]),
                tokens=tuple(request["tokens"]),
                kv_len=int(request["kv_len"]),
                pages=tuple(request["pages"]),
            )
            for request in body["requests"]
        ),
        ranks=tuple(
            RankRows(
                tp_rank=int(rank["tp_rank"]),
                attn_dcp_rank=int(rank["attn_dcp_rank"]),
                rows=tuple(
                    HeldRow(row=row, index=index, position=position, token=token)
                    for row, index, position, token in rank["rows"]
                ),
                free_rows=int(rank["free_rows"]),
                poisoned=bool(rank["free_rows_poisoned"]),
            )
            for rank in body["ranks"]
        ),
    )
