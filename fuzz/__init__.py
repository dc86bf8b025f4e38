"""Fuzz: bytes a hostile client may send, against the decoder and against a whole connection, guided by coverage.

`make fuzz` runs it; docs/fuzzing.md says how.
Not here: laws for all inputs (tests/property), real sockets (tests/wire).
"""
