-- A database as version 1 wrote it, by hand and frozen: what every later version must read.
-- {serial} is how the database numbers rows. The ids are the hashes of the rows' other fields.
CREATE TABLE schema_version (version INTEGER PRIMARY KEY, applied TEXT NOT NULL);
INSERT INTO schema_version VALUES (1, '2026-01-01T00:00:00Z');
CREATE TABLE identity (place INTEGER PRIMARY KEY CHECK (place = 1), ledger TEXT NOT NULL);
INSERT INTO identity VALUES (1, '5eed');
CREATE TABLE runs (
    id TEXT PRIMARY KEY, created TEXT NOT NULL, recorded DOUBLE PRECISION NOT NULL,
    reference_name TEXT NOT NULL, reference_sha256 TEXT NOT NULL, corpora TEXT NOT NULL,
    positions BIGINT NOT NULL, measures_version INTEGER NOT NULL
);
INSERT INTO runs VALUES
    ('aaaaaaaaaaaaaaaa', '2026-01-01T00:00:00Z', 1767225600.5, 'ref', 'rr', '["code"]', 10, 1);
CREATE TABLE candidates (
    run TEXT NOT NULL, place INTEGER NOT NULL, name TEXT NOT NULL, head_sha256 TEXT NOT NULL,
    encoding TEXT NOT NULL, bits_per_weight DOUBLE PRECISION, stored_bytes BIGINT,
    verdict TEXT NOT NULL, worst_retention DOUBLE PRECISION, worst_low DOUBLE PRECISION,
    worst_high DOUBLE PRECISION, worst_corpus TEXT, PRIMARY KEY (run, place)
);
INSERT INTO candidates VALUES
    ('aaaaaaaaaaaaaaaa', 0, 'q4', 'cc', 'Q4_0', 4.5, 5000000000, 'fidelity', 0.9, 0.8, 1.0, 'de');
CREATE TABLE reviews (
    entry {serial}, id TEXT NOT NULL UNIQUE, run TEXT NOT NULL, head_sha256 TEXT NOT NULL,
    decision TEXT NOT NULL, reason TEXT NOT NULL, reviewer TEXT NOT NULL,
    authenticated BOOLEAN NOT NULL, created TEXT NOT NULL, gate TEXT, policy_sha256 TEXT,
    waivers TEXT NOT NULL
);
INSERT INTO reviews (id, run, head_sha256, decision, reason, reviewer, authenticated, created,
    gate, policy_sha256, waivers) VALUES
    ('{review}', 'aaaaaaaaaaaaaaaa', 'cc', 'accept', 'gut für uns', 'ada', FALSE,
    '2026-03-01T00:00:00Z', 'fail', 'pp', '["{waiver}"]');
CREATE TABLE waivers (
    entry {serial}, id TEXT NOT NULL UNIQUE, head_sha256 TEXT NOT NULL, "limit" TEXT NOT NULL,
    reason TEXT NOT NULL, who TEXT NOT NULL, created TEXT NOT NULL, expires TEXT NOT NULL
);
INSERT INTO waivers (id, head_sha256, "limit", reason, who, created, expires) VALUES
    ('{waiver}', 'cc', 'worst-retention', 'one release', 'ada', '2026-03-01T00:00:00Z',
    '2026-12-31');
CREATE TABLE judgements (
    entry {serial}, id TEXT NOT NULL UNIQUE, run TEXT NOT NULL, head_sha256 TEXT NOT NULL,
    outcome TEXT NOT NULL, policy_name TEXT NOT NULL, policy_sha256 TEXT NOT NULL,
    judged TEXT NOT NULL, gate TEXT NOT NULL
);
INSERT INTO judgements (id, run, head_sha256, outcome, policy_name, policy_sha256, judged, gate)
    VALUES ('{judgement}', 'aaaaaaaaaaaaaaaa', 'cc', 'fail', 'release', 'pp',
    '2026-02-01T00:00:00Z', '{"outcome": "fail", "sentence": "fail: too little", "limits": [], "policy": {"name": "release", "sha256": "pp"}, "judged": "2026-02-01T00:00:00Z"}');
