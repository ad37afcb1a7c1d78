-- The rows up to `floor` were let go; `floor_hash` is that of the last of them, with which the chain goes on.
ALTER TABLE channel ADD COLUMN floor INTEGER NOT NULL DEFAULT 0;
ALTER TABLE channel ADD COLUMN floor_tick INTEGER NOT NULL DEFAULT 0;
ALTER TABLE channel ADD COLUMN floor_hash BLOB NOT NULL DEFAULT x'';
UPDATE channel SET floor_hash = first_hash(name, epoch);

-- A hash is now over the hash of the content: the chain is made anew, once.
WITH RECURSIVE chain (channel, n, before) AS (
    SELECT no, 1, floor_hash FROM channel
    UNION ALL
    SELECT channel, n + 1, row_hash(n, tick, id, kind, data, chain.before) FROM chain JOIN log USING (channel, n)
)
UPDATE log SET before = chain.before FROM chain WHERE chain.channel = log.channel AND chain.n = log.n;

-- What stays of a channel that was dropped at `at` (in ms): from where to where its chain runs, and its links.
CREATE TABLE erased (
    no INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    name TEXT NOT NULL,
    epoch TEXT NOT NULL UNIQUE,
    floor INTEGER NOT NULL,
    floor_tick INTEGER NOT NULL,
    floor_hash BLOB NOT NULL,
    n INTEGER NOT NULL,
    tick INTEGER NOT NULL,
    hash BLOB NOT NULL
) STRICT;

CREATE TABLE link (
    erased INTEGER NOT NULL REFERENCES erased (no),
    n INTEGER NOT NULL,
    tick INTEGER NOT NULL,
    kind TEXT NOT NULL,
    content BLOB NOT NULL,
    before BLOB NOT NULL,
    PRIMARY KEY (erased, n)
) STRICT, WITHOUT ROWID;
