-- What came with a run is kept for that run, by its scope, and deleted when the run has ended: another run that was given
-- the same has rows of its own.
ALTER TABLE citewire.given ADD COLUMN scope text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE citewire.given DROP CONSTRAINT given_pkey, ADD PRIMARY KEY (sha256, scope);
CREATE INDEX given_scope ON citewire.given (scope);
