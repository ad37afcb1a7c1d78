-- A row is never changed and never numbered anew, and the head of a channel is its last row. So old rows can
-- be let go later: all but the last, with a column in `channel` for the number below which they are gone.
CREATE TABLE channel (
    no INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    epoch TEXT NOT NULL
) STRICT;

CREATE TABLE log (
    channel INTEGER NOT NULL REFERENCES channel (no),
    n INTEGER NOT NULL,
    tick INTEGER NOT NULL,
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    data BLOB NOT NULL,
    before BLOB NOT NULL,
    PRIMARY KEY (channel, n)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX log_id ON log (channel, id);
