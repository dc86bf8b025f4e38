"""Up: `penstock up`, the broker, its page and the flow pipeline on a local Spark as one command.

command.py reads the command line, check.py says what is wrong with it, plan.py says with which words each part is
started, crew.py starts the parts, looks after them and stops them in order. A part is a process of its own (part.py),
on a leash (leash.py) so that it never outlives the command; what parts leave behind is found and ended by descent.py;
printer.py writes what all of them say, line by line. demo/ is the load of `--demo`.
Not here: the broker (server.py) and the pipeline (pipeline/, spark/), which are started as any user would start them.
"""
