-- A channel with its head: the number, the tick and the hash of its last row. `was` is the number before the last
-- batch, by which a writer says what it goes on from. Rows up to `floor` were let go. Where an older copy of the
-- database took over, ticks up to `lost_to` may have been given to rows that are no more.
CREATE TABLE citewire.channel (
    no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    epoch text COLLATE "C" NOT NULL,
    was bigint NOT NULL,
    n bigint NOT NULL,
    tick bigint NOT NULL,
    hash bytea NOT NULL,
    floor bigint NOT NULL DEFAULT 0,
    floor_tick bigint NOT NULL DEFAULT 0,
    floor_hash bytea NOT NULL,
    lost_to bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- Parted by channel, not by time: an id is unique in its channel for good, channels are kept for as long as their
-- rules say, each for itself, and vacuum and indexes have a sixteenth to deal with.
CREATE TABLE citewire.log (
    channel bigint NOT NULL,
    n bigint NOT NULL,
    tick bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    kind text NOT NULL,
    data bytea NOT NULL,
    before bytea NOT NULL,
    PRIMARY KEY (channel, n),
    UNIQUE (channel, id)
) PARTITION BY HASH (channel);

CREATE TABLE citewire.slot (
    channel bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (channel, key)
) PARTITION BY HASH (channel);

DO $$
BEGIN
    FOR part IN 0..15 LOOP
        EXECUTE format('CREATE TABLE citewire.log_%s PARTITION OF citewire.log '
            'FOR VALUES WITH (MODULUS 16, REMAINDER %s)', part, part);
        EXECUTE format('CREATE TABLE citewire.slot_%s PARTITION OF citewire.slot '
            'FOR VALUES WITH (MODULUS 16, REMAINDER %s) WITH (fillfactor = 70)', part, part);
    END LOOP;
END $$;

-- What stays of a channel that was dropped at `at` (in ms): from where to where its chain runs, and its links.
CREATE TABLE citewire.erased (
    no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    epoch text COLLATE "C" NOT NULL UNIQUE,
    floor bigint NOT NULL,
    floor_tick bigint NOT NULL,
    floor_hash bytea NOT NULL,
    n bigint NOT NULL,
    tick bigint NOT NULL,
    hash bytea NOT NULL
);

CREATE TABLE citewire.link (
    erased bigint NOT NULL REFERENCES citewire.erased (no),
    n bigint NOT NULL,
    tick bigint NOT NULL,
    kind text NOT NULL,
    content bytea NOT NULL,
    before bytea NOT NULL,
    PRIMARY KEY (erased, n)
);

-- Who took a lease last, and has not released it: whoever has the lock again knows whether another had it meanwhile.
CREATE TABLE citewire.lease (
    name text COLLATE "C" PRIMARY KEY,
    holder text NOT NULL
);

-- One batch of one node. Channels come by name in byte order, in which all nodes lock them; `r_at` and `p_at` say
-- to which of them a row and a slot belong. Where a channel is not as the node believes, nothing is written.
CREATE FUNCTION citewire.write(
    names text[], epochs text[], was_n bigint[], new_n bigint[], ticks bigint[], hashes bytea[],
    floors bigint[], floor_hashes bytea[],
    r_at integer[], r_n bigint[], r_tick bigint[], r_id text[], r_kind text[], r_data bytea[], r_before bytea[],
    p_at integer[], p_key text[], p_value bytea[],
    news text[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    numbers bigint[];
BEGIN
    WITH head AS (
        INSERT INTO citewire.channel AS c (name, epoch, was, n, tick, hash, floor, floor_hash)
        SELECT * FROM unnest(names, epochs, was_n, new_n, ticks, hashes, floors, floor_hashes)
        ON CONFLICT (name) DO UPDATE SET was = excluded.was, n = excluded.n, tick = excluded.tick, hash = excluded.hash
        WHERE c.epoch = excluded.epoch AND c.n = excluded.was AND c.floor = excluded.floor
        RETURNING c.no, c.name, c.was
    )
    SELECT array_agg(head.no ORDER BY at) INTO numbers
    FROM unnest(names) WITH ORDINALITY AS w (name, at) JOIN head USING (name);
    IF coalesce(cardinality(numbers), 0) < cardinality(names) THEN
        RAISE EXCEPTION 'a channel has gone on' USING ERRCODE = 'CW001';
    END IF;
    INSERT INTO citewire.log
    SELECT numbers[r.at], r.n, r.tick, r.id, r.kind, r.data, r.before
    FROM unnest(r_at, r_n, r_tick, r_id, r_kind, r_data, r_before) AS r (at, n, tick, id, kind, data, before);
    IF cardinality(p_at) > 0 THEN
        INSERT INTO citewire.slot AS s
        SELECT numbers[p.at], p.key, p.value FROM unnest(p_at, p_key, p_value) AS p (at, key, value)
        WHERE p.value IS NOT NULL
        ON CONFLICT (channel, key) DO UPDATE SET value = excluded.value;
        IF array_position(p_value, NULL) IS NOT NULL THEN
            DELETE FROM citewire.slot AS s USING unnest(p_at, p_key, p_value) AS p (at, key, value)
            WHERE p.value IS NULL AND s.channel = numbers[p.at] AND s.key = p.key;
        END IF;
    END IF;
    PERFORM pg_notify('citewire', each) FROM unnest(news) AS each;
END $$;

-- One at a time, so that they are numbered in the order of their commits.
CREATE FUNCTION citewire.erase(dropped text, at_ms bigint, news text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    c citewire.channel;
    entry bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('citewire erase', 0));
    SELECT * INTO c FROM citewire.channel WHERE name = dropped FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    INSERT INTO citewire.erased (at, name, epoch, floor, floor_tick, floor_hash, n, tick, hash)
    VALUES (at_ms, c.name, c.epoch, c.floor, c.floor_tick, c.floor_hash, c.n, c.tick, c.hash)
    RETURNING no INTO entry;
    INSERT INTO citewire.link
    SELECT entry, n, tick, kind, sha256(convert_to(octet_length(id) || ' ' || id, 'UTF8') || data), before
    FROM citewire.log WHERE channel = c.no;
    DELETE FROM citewire.slot WHERE channel = c.no;
    DELETE FROM citewire.log WHERE channel = c.no;
    DELETE FROM citewire.channel WHERE no = c.no;
    PERFORM pg_notify('citewire', each) FROM unnest(news) AS each;
END $$;

-- Whether the channel has a row `upto` (or ended there). The hash of a row is what the row after it holds.
CREATE FUNCTION citewire.trim(
    trimmed text, life text, upto bigint, afters text[], befores text[], news text[]
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    c citewire.channel;
BEGIN
    SELECT * INTO c FROM citewire.channel WHERE name = trimmed FOR UPDATE;
    IF NOT FOUND OR c.epoch <> life OR upto NOT BETWEEN c.floor AND c.n THEN
        RETURN false;
    END IF;
    IF upto > c.floor THEN
        UPDATE citewire.channel SET floor = upto,
            floor_tick = (SELECT tick FROM citewire.log WHERE channel = c.no AND n = upto),
            floor_hash = coalesce(
                (SELECT before FROM citewire.log WHERE channel = c.no AND n = upto + 1), c.hash)
        WHERE no = c.no;
        DELETE FROM citewire.log WHERE channel = c.no AND n <= upto;
    END IF;
    DELETE FROM citewire.slot AS s USING unnest(afters, befores) AS r (after, before)
    WHERE s.channel = c.no AND s.key > r.after COLLATE "C" AND s.key < r.before COLLATE "C";
    PERFORM pg_notify('citewire', each) FROM unnest(news) AS each;
    RETURN true;
END $$;

-- The number of the last row whose tick is not past this one: as ticks rise with numbers, by halving.
CREATE FUNCTION citewire.last_at(of_channel bigint, low bigint, high bigint, upto bigint)
RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
    middle bigint;
BEGIN
    WHILE low < high LOOP
        middle := (low + high + 1) / 2;
        IF (SELECT tick FROM citewire.log WHERE channel = of_channel AND n = middle) <= upto THEN
            low := middle;
        ELSE
            high := middle - 1;
        END IF;
    END LOOP;
    RETURN low;
END $$;
