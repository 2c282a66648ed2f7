-- When a memory's time is over; '' = never.
ALTER TABLE memories ADD COLUMN expires_at TEXT NOT NULL DEFAULT '';
CREATE INDEX memories_by_expiry ON memories (expires_at) WHERE expires_at <> '';
