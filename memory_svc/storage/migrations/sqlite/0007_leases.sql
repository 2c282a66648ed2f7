-- Which processes have the database open, and on which host. beat grows while one lives, at least every seconds / 4.
CREATE TABLE leases (
    process TEXT PRIMARY KEY,
    host TEXT NOT NULL,
    name TEXT NOT NULL,
    beat INTEGER NOT NULL,
    seconds REAL NOT NULL
) STRICT, WITHOUT ROWID;
