"""Console: the command line for a running broker, over its HTTP API. Knows nothing else of Penstock."""
