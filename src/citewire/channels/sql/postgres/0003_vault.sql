-- The keys and the secret of the server. No version comes twice, also not after an older copy was put back.

CREATE TABLE citewire.vault (
    name text PRIMARY KEY,
    data bytea NOT NULL,
    version uuid NOT NULL DEFAULT gen_random_uuid()
);
