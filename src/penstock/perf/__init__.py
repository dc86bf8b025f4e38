"""The load tool: `penstock perf` on any AMQP 0-9-1 broker, and two brokers in turns.

block.py and confirm.py make and read bytes; load.py moves them; site.py declares and deletes what a run needs;
scenario.py says what is measured; run.py plays scenarios in turns; figure.py and table.py show the result; command.py
is the command; rabbitmq.py starts a RabbitMQ to compare with.
"""
