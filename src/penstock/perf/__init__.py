"""The load tool: `penstock perf` on any AMQP 0-9-1 broker, and two brokers in turns.

block.py, confirm.py and sequence.py make and read bytes; load.py moves them; site.py declares and deletes what a run
needs; scenario.py and durable.py say what is measured, measure.py has the clocks around it; run.py plays scenarios in
turns; figure.py and table.py show the result; command.py is the command; rabbitmq.py starts a RabbitMQ to compare with;
cpu.py and memory.py read what a broker's processes use.
"""
