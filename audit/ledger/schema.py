"""The tables of the ledger's database as queries see them.

What creates and changes them is in `migrations`; a test holds the two against each other. `runs`
and `candidates` can be made again from the files at any time. `reviews`, `waivers` and `judgements`
exist here only and are never changed: `entry` is the order in which they were appended.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Float, Integer, MetaData, String, Table

metadata = MetaData()

schema_version = Table(
    "schema_version",
    metadata,
    Column("version", Integer, primary_key=True),
    Column("applied", String, nullable=False),
)

identity = Table(
    "identity",
    metadata,
    Column("place", Integer, primary_key=True),
    Column("ledger", String, nullable=False),
)
"""One row: the ledger whose runs are indexed here."""

runs = Table(
    "runs",
    metadata,
    Column("id", String, primary_key=True),
    Column("created", String, nullable=False),
    Column("recorded", Float, nullable=False),
    Column("reference_name", String, nullable=False),
    Column("reference_sha256", String, nullable=False),
    Column("corpora", String, nullable=False),
    Column("positions", BigInteger, nullable=False),
    Column("measures_version", Integer, nullable=False),
)

candidates = Table(
    "candidates",
    metadata,
    Column("run", String, primary_key=True),
    Column("place", Integer, primary_key=True),
    Column("name", String, nullable=False),
    Column("head_sha256", String, nullable=False),
    Column("encoding", String, nullable=False),
    Column("bits_per_weight", Float),
    Column("stored_bytes", BigInteger),
    Column("verdict", String, nullable=False),
    Column("worst_retention", Float),
    Column("worst_low", Float),
    Column("worst_high", Float),
    Column("worst_corpus", String),
)

reviews = Table(
    "reviews",
    metadata,
    Column("entry", BigInteger, primary_key=True, autoincrement=True),
    Column("id", String, unique=True, nullable=False),
    Column("run", String, nullable=False),
    Column("head_sha256", String, nullable=False),
    Column("decision", String, nullable=False),
    Column("reason", String, nullable=False),
    Column("reviewer", String, nullable=False),
    Column("authenticated", Boolean, nullable=False),
    Column("created", String, nullable=False),
    Column("gate", String),
    Column("policy_sha256", String),
    Column("waivers", String, nullable=False),
)

waivers = Table(
    "waivers",
    metadata,
    Column("entry", BigInteger, primary_key=True, autoincrement=True),
    Column("id", String, unique=True, nullable=False),
    Column("head_sha256", String, nullable=False),
    Column("limit", String, nullable=False),
    Column("reason", String, nullable=False),
    Column("who", String, nullable=False),
    Column("created", String, nullable=False),
    Column("expires", String, nullable=False),
)

judgements = Table(
    "judgements",
    metadata,
    Column("entry", BigInteger, primary_key=True, autoincrement=True),
    Column("id", String, unique=True, nullable=False),
    Column("run", String, nullable=False),
    Column("head_sha256", String, nullable=False),
    Column("outcome", String, nullable=False),
    Column("policy_name", String, nullable=False),
    Column("policy_sha256", String, nullable=False),
    Column("judged", String, nullable=False),
    Column("gate", String, nullable=False),
)
"""`gate` is the whole answer as JSON; the columns before it repeat what listings ask for."""
