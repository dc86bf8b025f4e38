"""The client: a small blocking AMQP 0-9-1 client for Spark executors, the load tool and the command line.

uri.py reads an address; connection.py talks to a broker, any AMQP 0-9-1 broker: nothing here knows Penstock's own.
"""
