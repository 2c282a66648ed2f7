-- Long texts have a vector a block: spans = where in the content all of them lie, further = the vectors after the first,
-- one after another. is_begun = some are still to be made.
ALTER TABLE vectors ADD COLUMN spans TEXT;
ALTER TABLE vectors ADD COLUMN further BLOB;
ALTER TABLE vectors ADD COLUMN is_begun INTEGER NOT NULL DEFAULT 0;
CREATE INDEX vectors_begun ON vectors (document) WHERE is_begun = 1;

-- Shorter texts fit into the window of any model there is; of longer ones a model has yet to tell.
UPDATE vectors SET is_begun = 1 WHERE vector IS NOT NULL AND (
    (document & 15 = 0 AND document >> 4 IN (SELECT id FROM memories WHERE octet_length(content) > 400))
    OR (document & 15 = 1 AND document >> 4 IN
        (SELECT id FROM episodes WHERE octet_length(summary) + octet_length(keywords) > 400))
);
