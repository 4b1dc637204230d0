"""Attention over a paged pool as Triton kernels: compiled on GPUs, run by Triton's interpreter on CPUs.

    installed   whether Triton is there at all; imports nothing
    loading     in which of the two ways the kernels of this process run
    softmax, decode_kernel, extend_kernel, merge_kernel     what runs on the device
    shapes      what is required of their arguments
    calls       the kernels as functions of tensors, and as seams
    backend     these functions as an engine's attention backend

The kernels' modules alone import triton, and only `loading` imports them.
"""
