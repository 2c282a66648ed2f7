-- How many rows each agent has of each kind, and how many terms they and their windows hold.
-- The code stands before every term of the agent's rows in the word index: a query reads the rows of its agent alone.
CREATE TABLE corpora (
    code INTEGER PRIMARY KEY AUTOINCREMENT,
    agent TEXT NOT NULL,
    kind INTEGER NOT NULL,
    rows INTEGER NOT NULL,
    terms INTEGER NOT NULL,
    windows INTEGER NOT NULL,
    UNIQUE (agent, kind)
) STRICT;

-- Derived. Terms as `code:term`, one blank between two. forms: long words of which the other fields hold the stems.
DROP TABLE words;
CREATE VIRTUAL TABLE words USING fts5 (
    speaker, date, text, extras, forms,
    content = '',
    contentless_delete = 1,
    tokenize = "ascii tokenchars '!""#$%&''()*+,-./:;<=>?@[\]^_`{|}~'"
);
CREATE VIRTUAL TABLE postings USING fts5vocab (words, instance);

-- Derived. Neighbours and lengths of rows, many cells to a page.
ALTER TABLE memories ADD COLUMN talk TEXT NOT NULL DEFAULT '';
CREATE INDEX memories_by_time ON memories (agent, project, channel, talk, timestamp, id);
CREATE TABLE windows (
    page INTEGER PRIMARY KEY,
    cells BLOB NOT NULL
) STRICT;

-- Derived. The long words of each corpus, and their trigrams. doubtful = a row that held it is gone.
CREATE TABLE vocabulary (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    code INTEGER NOT NULL,
    word TEXT NOT NULL,
    doubtful INTEGER NOT NULL DEFAULT 0,
    UNIQUE (code, word)
) STRICT;
CREATE INDEX vocabulary_in_doubt ON vocabulary (id) WHERE doubtful = 1;
CREATE VIRTUAL TABLE pieces USING fts5 (
    word,
    content = '',
    contentless_delete = 1,
    detail = none,
    tokenize = 'trigram case_sensitive 1'
);

-- The vector of a line of talk now stands for who speaks and the day too, so it is made anew.
UPDATE vectors SET fingerprint = '', vector = NULL WHERE document & 15 = 0 AND fingerprint IS NOT NULL
    AND document >> 4 IN (SELECT id FROM memories WHERE json_valid(source) AND json_extract(source, '$.name') <> '');
