-- What was chosen for an agent's recall.
CREATE TABLE precisions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    agent TEXT NOT NULL UNIQUE,
    project TEXT NOT NULL,
    beta REAL NOT NULL,
    method TEXT NOT NULL,
    z_factor REAL NOT NULL,
    percentile REAL NOT NULL,
    sample_size INTEGER NOT NULL,
    revision INTEGER NOT NULL
) STRICT;

-- Derived. What the gate goes by. corpus and rule stand for the memories and the choices it was made of.
CREATE TABLE calibrations (
    agent TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    corpus TEXT NOT NULL,
    rule TEXT NOT NULL,
    rows INTEGER NOT NULL,
    threshold REAL NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (agent, fingerprint)
) STRICT, WITHOUT ROWID;
