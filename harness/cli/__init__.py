"""The commands: arguments in, one call per step, no logic of their own."""
