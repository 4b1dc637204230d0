"""The router of a pair: sends each request through a prefill engine and a decode engine, and answers for both.

It moves requests only; KV goes from the prefill ranks to the decode ranks directly. `bodies` and `policy` decide
without I/O, `sides` knows the engines, `attempt` is one try of one request, `proxy` the whole of it.
"""
