"""The routes of the API, by subject. Each module has its handlers and its table, ROUTES; api.py joins them."""
