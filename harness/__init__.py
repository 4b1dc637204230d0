"""harness: regression and CI tests for distributed inference topologies."""
