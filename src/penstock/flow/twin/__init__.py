"""Twin: the chain once more, in simulated time. What would this load see with other settings?

A discrete-event simulation of reader, channel, queue, store and consumers on the broker's own credit code
(penstock.credit), in batches as the broker works, with service times measured on the broker it is the twin of.
Pure: plain values in, plain values out; the same in, the same out. docs/twin.md says what it models and what not.

    plant.py     what it is told and tells: Plant, Load, Settings, Outcome
    machine.py   time, the event loop, turns
    stages.py    reader, channel, queue
    disk.py      store, and the journal's thread
    clients.py   publishers, consumers and their sockets
    simulate.py  all of it put together, run, and summed up
    fit.py       from tables of samples and syncs to a plant
    tune.py      the plant against what a whole load was seen to do
"""

from penstock.flow.twin.fit import fit
from penstock.flow.twin.plant import Consumers, Cost, Load, Outcome, Plant, Publishers, Settings
from penstock.flow.twin.simulate import simulate
from penstock.flow.twin.tune import tune

__all__ = ["Consumers", "Cost", "Load", "Outcome", "Plant", "Publishers", "Settings", "fit", "simulate", "tune"]
