-- What is managed over the API. `document` is the whole table of the configuration, sealed (`mediaserver.vault`):
-- passwords and engines' options among them are readable in no row. '' for what the file manages.

ALTER TABLE companies ADD COLUMN document TEXT NOT NULL DEFAULT '';

ALTER TABLE trunks ADD COLUMN document TEXT NOT NULL DEFAULT '';

ALTER TABLE agents ADD COLUMN document TEXT NOT NULL DEFAULT '';

ALTER TABLE subscriptions ADD COLUMN document TEXT NOT NULL DEFAULT '';

ALTER TABLE api_keys ADD COLUMN name TEXT NOT NULL DEFAULT '';

-- The agents that it is for, [] for all of the company's.
ALTER TABLE api_keys ADD COLUMN agents TEXT NOT NULL DEFAULT '[]';

-- The first characters of the key, by which people tell keys apart.
ALTER TABLE api_keys ADD COLUMN hint TEXT NOT NULL DEFAULT '';

ALTER TABLE api_keys ADD COLUMN last_used_at_ms BIGINT NOT NULL DEFAULT 0;

-- 0: never.
ALTER TABLE api_keys ADD COLUMN expires_at_ms BIGINT NOT NULL DEFAULT 0;

CREATE INDEX api_keys_listed ON api_keys (company_id, id);

-- Goes up with every change, so that other nodes see that there was one.
CREATE TABLE revisions (
    id INTEGER PRIMARY KEY,
    number BIGINT NOT NULL
);

INSERT INTO revisions (id, number) VALUES (1, 0);

-- A browser session that was opened, and who may join it until when.
CREATE TABLE web_rooms (
    name TEXT PRIMARY KEY,
    company_id TEXT NOT NULL REFERENCES companies (id),
    agent_id TEXT NOT NULL,
    identity TEXT NOT NULL,
    user_ref TEXT NOT NULL,
    variables TEXT NOT NULL,
    metadata TEXT NOT NULL,
    created_at_ms BIGINT NOT NULL,
    expires_at_ms BIGINT NOT NULL
);

CREATE INDEX web_rooms_listed ON web_rooms (company_id, created_at_ms);
