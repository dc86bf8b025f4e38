"""Flow: the explanation. From snapshots of the broker to what blocks what, and to one sentence per publisher.

Pure: plain values in, plain values out. No clock, no socket, nothing of the broker but its snapshot's JSON.

    state.py    one snapshot, read
    history.py  a minute of them: who was blocked by what, for how long
    graph.py    who waits for whom, and the bottleneck behind a connection
    verdict.py  one verdict per connection that is held back
    window.py   the same of a window that is over, from who waited for whom in it
    words.py    its sentence, and the knobs that help
    past.py     verdicts that are over
"""
