"""Admin: what an operator can see of a running broker and do to it.

Place: management/ and tests call it, on the broker's own thread; all that they need of the broker is exported here.
Not here: HTTP and who may call what (management/), new hashes for passwords: they are slow and made by the caller
(password.py).
"""

from penstock.broker.admin.admin import Admin
from penstock.broker.admin.error import AdminError, Settings
from penstock.broker.definitions import Summary, hash_passwords
from penstock.broker.ledger import Json
from penstock.broker.password import Secret, new_secret
from penstock.broker.snapshot import Listing

__all__ = ["Admin", "AdminError", "Json", "Listing", "Secret", "Settings", "Summary", "hash_passwords", "new_secret"]
