-- When a memory's time is over; '' = never.
ALTER TABLE memories ADD COLUMN expires_at TEXT NOT NULL DEFAULT '';
CREATE INDEX memories_by_expiry ON memories (expires_at) WHERE expires_at <> '';

-- Its tags as they were given, as a JSON array.
ALTER TABLE memories ADD COLUMN tags TEXT NOT NULL DEFAULT '[]';

-- Derived. The same in the form in which they are compared.
CREATE TABLE tags (
    tag TEXT NOT NULL,
    memory INTEGER NOT NULL,
    PRIMARY KEY (tag, memory)
) STRICT, WITHOUT ROWID;
CREATE INDEX tags_by_memory ON tags (memory);
