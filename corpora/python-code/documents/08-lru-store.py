from collections import OrderedDict
import sqlite3
import time


class CachedStore:
    """Key-value table in SQLite with a bounded in-memory cache on top."""

    SCHEMA = """
        CREATE TABLE IF NOT EXISTS entries (
            key TEXT PRIMARY KEY,
            value BLOB NOT NULL,
            expires REAL
        )
    """

    def __init__(self, filename=":memory:", capacity=256):
        self._db = sqlite3.connect(filename, isolation_level=None)
        self._db.execute(self.SCHEMA)
        self._capacity = capacity
        self._cache = OrderedDict()

    def put(self, key, value, ttl=None):
        expires = None if ttl is None else time.time() + ttl
        self._db.execute("REPLACE INTO entries VALUES (?, ?, ?)", (key, value, expires))
        self._remember(key, value, expires)

    def get(self, key, default=None):
        if key in self._cache:
            value, expires = self._cache[key]
            self._cache.move_to_end(key)
        else:
            query = "SELECT value, expires FROM entries WHERE key = ?"
            row = self._db.execute(query, (key,)).fetchone()
            if row is None:
                return default
            value, expires = row
            self._remember(key, value, expires)
        if expires is not None and expires < time.time():
            self._cache.pop(key, None)
            return default
        return value

    def _remember(self, key, value, expires):
        self._cache[key] = (value, expires)
        self._cache.move_to_end(key)
        while len(self._cache) > self._capacity:
            self._cache.popitem(last=False)
