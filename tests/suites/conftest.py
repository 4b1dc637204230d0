"""This room is named `suites`, as a catalogue is: its data are inputs of tests, no suites to run."""

collect_ignore = ["data"]
