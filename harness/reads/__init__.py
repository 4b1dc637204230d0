"""Reads: from which source does each consumer of the real SGLang package take its DCP topology?

Importing this room imports no engine: consumers import the package when they are driven, in an environment
that has it.
"""
