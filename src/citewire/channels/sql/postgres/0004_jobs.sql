-- What workers are asked, and what they found: `job` is the job of procrastinate in which a worker takes the question,
-- and `data` the verdict, which is written once.
CREATE TABLE citewire.verdict (
    key text COLLATE "C" PRIMARY KEY,
    question bytea NOT NULL,
    job bigint NOT NULL,
    data bytea,
    at timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX verdict_asked ON citewire.verdict (job) WHERE data IS NULL;
CREATE INDEX verdict_at ON citewire.verdict (at);

-- What came with a run to be looked in, under its sha256, for as long as somebody may ask about it.
CREATE TABLE citewire.given (
    sha256 text COLLATE "C" PRIMARY KEY,
    data bytea NOT NULL,
    at timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX given_at ON citewire.given (at);
