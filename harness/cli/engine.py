"""`harness engine`: the reference engine as a server, and the router of two."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.route import route
from harness.errors import UsageError
from harness.refengine.config import (
    AttentionBackend,
    CommBackend,
    DcpCommBackend,
    Device,
    DisaggregationMode,
    EngineConfig,
    StartMethod,
    TransferBackend,
)

app = typer.Typer(help="The embedded reference engine.", no_args_is_help=True)

# One source of truth: the defaults of the command line are those of the configuration.
DEFAULTS = EngineConfig()

_NOT_OF_THE_ENGINE = {"fault", "allow_idle_faults", "ready_file"}


@app.callback()
def engine() -> None:
    """The embedded reference engine: small, really sharded over processes, with SGLang's HTTP surface.

    Example: harness engine serve --tp 8 --dcp 8 --port 30000
    """


@app.command()
def serve(
    tp: Annotated[int, typer.Option(help="Tensor-parallel ranks, one process each.")] = DEFAULTS.tp,
    dcp: Annotated[int, typer.Option(help="Decode-context-parallel size; divides --tp.")] = DEFAULTS.dcp,
    model: Annotated[
        str,
        typer.Option(
            help="builtin:random-gqa, builtin:sums-gqa (trained), another built-in, or a file *.safetensors."
        ),
    ] = DEFAULTS.model,
    page_size: Annotated[int, typer.Option(help="KV rows in a page of one rank.")] = DEFAULTS.page_size,
    interleave: Annotated[
        int, typer.Option(help="Consecutive tokens that one rank owns; divides --page-size.")
    ] = DEFAULTS.interleave,
    attention_backend: Annotated[
        AttentionBackend,
        typer.Option(
            help="Who attends over the pool; triton needs the extra of that name, and is interpreted on CPU."
        ),
    ] = DEFAULTS.attention_backend,
    dcp_comm_backend: Annotated[
        DcpCommBackend, typer.Option(help="How partial attention outputs are merged.")
    ] = DEFAULTS.dcp_comm_backend,
    comm: Annotated[CommBackend, typer.Option(help="How ranks exchange tensors.")] = DEFAULTS.comm,
    device: Annotated[Device, typer.Option(help="Where tensors live.")] = DEFAULTS.device,
    start_method: Annotated[
        StartMethod, typer.Option(help="How ranks start; cuda needs spawn.")
    ] = DEFAULTS.start_method,
    dtype: Annotated[str, typer.Option(help="fp32 or bf16, of weights and KV.")] = DEFAULTS.dtype,
    kv_bytes: Annotated[int, typer.Option(help="Bytes of KV pool per rank.")] = DEFAULTS.kv_bytes,
    max_total_tokens: Annotated[
        int | None, typer.Option(help="Aggregate token cap on top of --kv-bytes.")
    ] = DEFAULTS.max_total_tokens,
    chunked_prefill_size: Annotated[
        int, typer.Option(help="Tokens of a prefill step.")
    ] = DEFAULTS.chunked_prefill_size,
    max_running_requests: Annotated[
        int, typer.Option(help="Requests that run at once.")
    ] = DEFAULTS.max_running_requests,
    seed: Annotated[int, typer.Option(help="Seed of a random-weight model.")] = DEFAULTS.seed,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = DEFAULTS.host,
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = DEFAULTS.port,
    kv_rows: Annotated[
        bool, typer.Option(help="Offer GET /kv_rows: which token each physical KV row holds.")
    ] = DEFAULTS.kv_rows,
    poison: Annotated[
        float, typer.Option(help="Finite value that fills free KV rows, so that reading one shows.")
    ] = DEFAULTS.poison,
    served_model_name: Annotated[
        str, typer.Option(help="Name told by /v1/models; the model id when empty.")
    ] = DEFAULTS.served_model_name,
    disaggregation_mode: Annotated[
        DisaggregationMode,
        typer.Option(help="prefill computes prompts and hands KV over, decode takes over; see: engine route"),
    ] = DEFAULTS.disaggregation_mode,
    disaggregation_transfer_backend: Annotated[
        TransferBackend, typer.Option(help="How KV travels; the same on both sides of a pair.")
    ] = DEFAULTS.disaggregation_transfer_backend,
    transfer_timeout: Annotated[
        float, typer.Option(help="Seconds without progress after which a handover is given up.")
    ] = DEFAULTS.transfer_timeout,
    nonce: Annotated[str, typer.Option(help="Text that /server_info repeats; random when empty.")] = "",
    fault: Annotated[
        list[str] | None, typer.Option(help="Inject this fault; may be repeated. See: harness faults list")
    ] = None,
    allow_idle_faults: Annotated[
        bool,
        typer.Option(
            help="Take faults that break nothing here, too: a run plants all of its own everywhere."
        ),
    ] = False,
    ready_file: Annotated[
        Path | None, typer.Option(help="Write {url, pid, nonce, pids} here once ready.")
    ] = None,
) -> None:
    """Serve until SIGTERM or Ctrl-C. Prints one line, `ready http://…`, once every rank answers.

    Example: harness engine serve --tp 8 --dcp 8 --port 30000
    """
    given = {name: value for name, value in locals().items() if name not in _NOT_OF_THE_ENGINE}

    from harness.refengine.launcher import launch

    # Every other option is an argument of the engine, by the same name.
    config = EngineConfig(**given)
    zygote = _faulty_zygote(fault, config, allow_idle=allow_idle_faults) if fault else None
    raise typer.Exit(launch(config, zygote_argv=zygote, ready_file=ready_file))


def _faulty_zygote(names: Sequence[str], config: EngineConfig, *, allow_idle: bool) -> list[str]:
    """The command of a zygote with these faults. Raises UsageError for one that is unknown, or breaks nothing here."""
    from harness.faults import get_fault

    faults = [get_fault(name) for name in names]
    for fault in faults:
        if not allow_idle and (needed := fault.needs(config)):
            raise UsageError(f"--fault {fault.id}: breaks nothing in this engine; it needs {needed}")
    flags = [part for fault in faults for part in ("--fault", fault.id)]
    return [sys.executable, "-m", "harness.faults.zygote", *flags]


app.command("route")(route)
