-- How often a memory was recalled, and when last. Neither truth nor derived: not journaled, and losing it loses little.
CREATE TABLE recalls (
    id INTEGER PRIMARY KEY,
    count INTEGER NOT NULL,
    last TEXT NOT NULL
) STRICT;

-- The episode that ended last.
CREATE INDEX episodes_by_end
    ON episodes (agent, coalesce(nullif(end_time, ''), nullif(start_time, ''), created_at));
