-- Whether this database may have lost what nodes did (mediaserver.history). `identity` is that of the engine in which
-- it was last found whole, `generation` goes up when it may not be any more. A node is listed from its first look
-- until it has ended in order, with the generation that it has compared its own notes with.
CREATE TABLE history (
    id INTEGER PRIMARY KEY,
    generation BIGINT NOT NULL,
    identity TEXT NOT NULL
);

INSERT INTO history (id, generation, identity) VALUES (1, 1, {identity});

CREATE TABLE nodes (
    id TEXT PRIMARY KEY,
    generation BIGINT NOT NULL,
    seen_at_ms BIGINT NOT NULL
);
