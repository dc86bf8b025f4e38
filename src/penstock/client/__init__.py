"""The client: a small blocking AMQP 0-9-1 client for Spark executors, the load tool and the command line.

uri.py reads an address; connection.py talks to a broker, plain or over TLS, and inbox.py cuts what it says into frames;
consumer.py reads deliveries in batches; publisher.py publishes with confirms; error.py is what can go wrong. Any AMQP
0-9-1 broker will do. stream.py alone knows something of Penstock's own: how to ask for a stream's offsets.
"""
