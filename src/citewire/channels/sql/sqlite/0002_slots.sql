-- What the rows of a channel add up to, by key. Changed only together with the rows that explain it.
CREATE TABLE slot (
    channel INTEGER NOT NULL REFERENCES channel (no),
    key TEXT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (channel, key)
) STRICT, WITHOUT ROWID;
