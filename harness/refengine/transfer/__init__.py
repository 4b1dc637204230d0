"""Handing KV over from a prefill engine to a decode engine, rank to rank.

`handshake` says whether two engines fit, `routes` which rank sends which KV heads to which, `packing` which rows
these are and how they travel: these know no sockets, threads or requests. `sender` and `receiver` move the rows, each
in a thread of its own, over one of `transports`; `rooms` and `sending`, `arriving` and `source_link` are what they
are made of, `wire` and `events` what they say to each other and to their rank.
"""
