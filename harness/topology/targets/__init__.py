"""Targets: what topology tests look at. `reference` is this room's own arithmetic, `sglang` the real package.

Nothing here imports an engine's package before a target is asked for: `import harness.topology` stays free of
torch and of SGLang. `targets.sglang` is `inject(target="sglang")`, `targets.layout` the layout functions.
"""
