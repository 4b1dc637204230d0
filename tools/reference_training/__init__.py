"""Trains the reference engine's model on the *sums* task; the command is `tools/train_reference.py`.

Two shards of data feed every step. Two processes take one each, one process takes both in turn: the gradient
is the same sum of the same two numbers, so the checkpoint is too, bit for bit on CPUs of one kind.
"""
