"""The client: a small blocking AMQP 0-9-1 client for Spark executors, the load tool and the command line.

uri.py reads an address; connection.py talks to a broker. Any AMQP 0-9-1 broker will do: nothing here knows Penstock's own.
"""
