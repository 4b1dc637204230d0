"""The probes, one module for each group of consumers; `registry.load_consumers` imports every module here.

A probe is a function `(worker, role, stage)` that calls the real function named in its decorator and returns
the number (or gate) that came out. What it needs beside the topology are stand-ins, made in its body.
"""
