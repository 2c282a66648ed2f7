CREATE TABLE memories (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    agent TEXT NOT NULL,
    project TEXT NOT NULL,
    channel TEXT NOT NULL,
    msg_id TEXT NOT NULL,
    digest BLOB NOT NULL,
    content TEXT NOT NULL,
    source TEXT NOT NULL,
    source_id TEXT NOT NULL,
    timestamp TEXT NOT NULL,
    metadata TEXT NOT NULL,
    created_at TEXT NOT NULL,
    locked INTEGER NOT NULL,
    revision INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX memories_by_msg_id ON memories (agent, project, msg_id) WHERE msg_id <> '';
CREATE UNIQUE INDEX memories_by_digest ON memories (agent, project, channel, digest);
CREATE INDEX memories_by_age ON memories (created_at, id);
CREATE INDEX memories_by_agent_and_age ON memories (agent, created_at, id);

CREATE TABLE episodes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    agent TEXT NOT NULL,
    project TEXT NOT NULL,
    channel TEXT NOT NULL,
    summary TEXT NOT NULL,
    keywords TEXT NOT NULL,
    start_time TEXT NOT NULL,
    end_time TEXT NOT NULL,
    created_at TEXT NOT NULL,
    resolved INTEGER NOT NULL,
    revision INTEGER NOT NULL
) STRICT;
CREATE INDEX episodes_by_age ON episodes (created_at, id);
CREATE INDEX episodes_by_agent_and_age ON episodes (agent, created_at, id);

CREATE TABLE profiles (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    agent TEXT NOT NULL,
    user TEXT NOT NULL,
    project TEXT NOT NULL,
    content TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    revision INTEGER NOT NULL,
    UNIQUE (agent, user, project)
) STRICT;

-- One row for each effect; row NULL = an erasure, or blanked by one.
CREATE TABLE journal (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    write INTEGER NOT NULL,
    instant TEXT NOT NULL,
    principal TEXT NOT NULL,
    operation TEXT NOT NULL,
    agent TEXT NOT NULL,
    project TEXT NOT NULL,
    kind TEXT NOT NULL,
    id INTEGER NOT NULL,
    erasure INTEGER NOT NULL,
    row TEXT
) STRICT;
CREATE INDEX journal_by_row ON journal (kind, id);

-- What a repeated idempotency key answers. Holds outcomes and refs, never a text.
CREATE TABLE keys (
    principal TEXT NOT NULL,
    key TEXT NOT NULL,
    digest BLOB NOT NULL,
    applied BLOB NOT NULL,
    instant TEXT NOT NULL,
    PRIMARY KEY (principal, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX keys_by_age ON keys (instant);

CREATE TABLE state (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Derived. One row for each searched row, for ever: number grows with each change, so that residents can follow;
-- fingerprint '' = waits for its vector, NULL = the row is gone.
CREATE TABLE vectors (
    document INTEGER PRIMARY KEY,
    number INTEGER NOT NULL UNIQUE,
    revision INTEGER NOT NULL,
    fingerprint TEXT,
    vector BLOB
) STRICT;
CREATE INDEX vectors_by_fingerprint ON vectors (fingerprint, document);

-- Derived. The text is cut into words before it comes here, one blank between two; every other character belongs to one.
CREATE VIRTUAL TABLE words USING fts5 (
    text,
    content = '',
    contentless_delete = 1,
    tokenize = "unicode61 remove_diacritics 0 categories 'L* M* N* P* S* Co'"
);
