-- What the dispatch rules need to know, batches, and why a call is not dialled yet.

ALTER TABLE companies ADD COLUMN calling_windows TEXT NOT NULL DEFAULT '[]';

-- A JSON list; '' where the company lists none.
ALTER TABLE companies ADD COLUMN caller_ids TEXT NOT NULL DEFAULT '';

ALTER TABLE trunks ADD COLUMN max_concurrent_calls INTEGER NOT NULL DEFAULT 0;

ALTER TABLE trunks ADD COLUMN calls_per_second INTEGER NOT NULL DEFAULT 0;

-- '' is the company's own windows.
ALTER TABLE agents ADD COLUMN calling_windows TEXT NOT NULL DEFAULT '';

ALTER TABLE agents ADD COLUMN retry TEXT NOT NULL DEFAULT '{}';

CREATE TABLE do_not_call (
    company_id TEXT NOT NULL REFERENCES companies (id),
    phone_number TEXT NOT NULL,
    reason TEXT NOT NULL,
    created_at_ms BIGINT NOT NULL,
    PRIMARY KEY (company_id, phone_number)
);

-- `open` counts the calls that are not over; the transaction that ends the last one ends the batch. `due_at_ms`
-- is when the first of them was due at the beginning.
CREATE TABLE batches (
    position {serial},
    id TEXT NOT NULL UNIQUE,
    company_id TEXT NOT NULL REFERENCES companies (id),
    agent_id TEXT NOT NULL,
    webhook_id TEXT NOT NULL,
    status TEXT NOT NULL,
    total INTEGER NOT NULL,
    open INTEGER NOT NULL,
    due_at_ms BIGINT NOT NULL,
    created_at_ms BIGINT NOT NULL,
    ended_at_ms BIGINT NOT NULL DEFAULT 0
);

CREATE INDEX batches_listed ON batches (company_id, position);

-- What a request with an Idempotency-Key came to: the id of a call, or a batch's answer as JSON.
CREATE TABLE repeatable (
    company_id TEXT NOT NULL REFERENCES companies (id),
    request_key TEXT NOT NULL,
    body_sha256 TEXT NOT NULL,
    call_id TEXT NOT NULL,
    answer TEXT NOT NULL,
    created_at_ms BIGINT NOT NULL,
    PRIMARY KEY (company_id, request_key)
);

CREATE INDEX repeatable_age ON repeatable (created_at_ms);

CREATE TABLE decisions (
    call_id TEXT NOT NULL REFERENCES calls (id),
    number INTEGER NOT NULL,
    at_ms BIGINT NOT NULL,
    last_at_ms BIGINT NOT NULL,
    times INTEGER NOT NULL,
    rule TEXT NOT NULL,
    reason TEXT NOT NULL,
    until_ms BIGINT NOT NULL,
    PRIMARY KEY (call_id, number)
);

-- The contact limit and the trunk's rate look at attempts by number and by trunk.
ALTER TABLE attempts ADD COLUMN company_id TEXT NOT NULL DEFAULT '';

ALTER TABLE attempts ADD COLUMN phone_number TEXT NOT NULL DEFAULT '';

UPDATE attempts SET
    company_id = (SELECT c.company_id FROM calls c WHERE c.id = attempts.call_id),
    phone_number = (SELECT c.phone_number FROM calls c WHERE c.id = attempts.call_id);

CREATE INDEX attempts_contact ON attempts (company_id, phone_number, started_at_ms);
CREATE INDEX attempts_trunk ON attempts (trunk_id, started_at_ms);

-- A queue for each trunk: one that is full holds up no other. A batch's calls move between QUEUED and HELD.
DROP INDEX calls_queued;

CREATE INDEX calls_queued ON calls (trunk_id, not_before_ms, position) WHERE stage = 'QUEUED';
CREATE INDEX calls_trunk ON calls (trunk_id, stage);
CREATE INDEX calls_pending ON calls (company_id, phone_number, stage);
CREATE INDEX calls_batch ON calls (batch_id, stage) WHERE batch_id <> '';
