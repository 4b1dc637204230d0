"""Compiles the kernels for GPUs that need not be there, and prints a line of JSON for each; run as a program."""

from __future__ import annotations

import json
import re
import sys

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from harness.refengine.triton_kernels.decode_kernel import decode_kernel
from harness.refengine.triton_kernels.extend_kernel import extend_kernel
from harness.refengine.triton_kernels.merge_kernel import merge_kernel

# What the launch of each kernel is given; a tuple of strides has as many numbers as its tensor has dims.
POINTERS = {
    "decode_kernel": {"q": "fp32", "kv": "", "table": "i64", "lens": "i64", "out": "fp32", "lse": "fp32"},
    "merge_kernel": {"parts": "fp32", "lses": "fp32", "out": "fp32", "lse": "fp32"},
    "extend_kernel": {
        "q": "fp32",
        "new": "",
        "prefix": "",
        "order": "i64",
        "out": "fp32",
        "new_ends": "i64",
        "prefix_ends": "i64",
        "kv_of_head": "i64",
    },
}
STRIDES = {
    "decode_kernel": {"q_at": 3, "kv_at": 4, "table_at": 2, "lens_at": 1, "out_at": 4, "lse_at": 3},
    "merge_kernel": {"parts_at": 4, "lses_at": 3, "out_at": 3, "lse_at": 2},
    "extend_kernel": {"q_at": 3, "new_at": 4, "prefix_at": 4, "out_at": 3},
}
ALIGNED = [["tt.divisibility", 16]]
KERNELS = {kernel.__name__: kernel for kernel in (decode_kernel, merge_kernel, extend_kernel)}


def compile_for(
    name: str, *, capability: int, dtype: str, constants: dict[str, int | bool]
) -> dict[str, object]:
    """What Triton made of one kernel: bytes of shared memory, whether it loads keys ahead, in which types it
    multiplies indices."""
    pointers, strides = POINTERS[name], STRIDES[name]
    signature: dict[str, object] = {}
    known: dict[object, int | bool] = dict(constants)
    aligned: dict[tuple[int, ...], object] = {}
    for place, argument in enumerate(KERNELS[name].arg_names):
        if argument in constants:
            signature[argument] = "constexpr"
        elif argument in pointers:
            signature[argument] = f"*{pointers[argument] or dtype}"
            aligned[(place,)] = ALIGNED
        elif argument in strides:
            # As a launch with tensors of their own finds them: multiples of 16, and neighbours along the last dim.
            last = strides[argument] - 1
            signature[argument] = (*("i32",) * last, "constexpr")
            known[place, last] = 1
            aligned |= {(place, dim): ALIGNED for dim in range(last)}
        else:
            signature[argument] = "fp32" if argument == "scale" else "i32"
    source = ASTSource(fn=KERNELS[name], signature=signature, constexprs=known, attrs=aligned)
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32))
    products = re.findall(r"arith\.muli .* : (\S+)", made.asm["ttir"])
    return {
        "kernel": name,
        "shared": made.metadata.shared,
        "pipelined": "cp.async" in made.asm["ptx"],
        "products": sorted({re.sub(r"tensor<(\d+x)*|>", "", product) for product in products}),
    }


if __name__ == "__main__":
    for given in json.loads(sys.argv[1]):
        print(json.dumps(compile_for(**given)), flush=True)
