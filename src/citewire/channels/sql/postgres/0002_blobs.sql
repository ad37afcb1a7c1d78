-- The bytes of sources and attachments, each room (`sources`, `attachments`) for itself, under their sha256 in
-- pieces. What is `touched` is about to be referred to, and stays for a while although nobody does yet.

CREATE TABLE citewire.blob (
    room text NOT NULL,
    sha256 text NOT NULL,
    size bigint NOT NULL,
    touched timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (room, sha256)
);

CREATE TABLE citewire.blob_part (
    room text NOT NULL,
    sha256 text NOT NULL,
    part integer NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (room, sha256, part),
    FOREIGN KEY (room, sha256) REFERENCES citewire.blob ON DELETE CASCADE
);

-- Most documents are compressed already.
ALTER TABLE citewire.blob_part ALTER data SET STORAGE EXTERNAL;
