-- The first shape. One text for SQLite and PostgreSQL: {serial} is an ascending identity column, times are
-- milliseconds since 1970 UTC (0: not yet), flags are 0 or 1, documents are JSON text.
-- Secrets have no column: keys are kept as SHA-256, the rest stays in the configuration.

CREATE TABLE companies (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    duplicate_policy TEXT NOT NULL,
    contact_calls INTEGER NOT NULL,
    contact_minutes INTEGER NOT NULL,
    dial_prefixes TEXT NOT NULL,
    max_concurrent_calls INTEGER NOT NULL,
    web_calls INTEGER NOT NULL,
    country TEXT NOT NULL,
    from_file INTEGER NOT NULL,
    enabled INTEGER NOT NULL,
    created_at_ms BIGINT NOT NULL
);

CREATE TABLE api_keys (
    id TEXT PRIMARY KEY,
    company_id TEXT NOT NULL REFERENCES companies (id),
    key_sha256 TEXT NOT NULL UNIQUE,
    scopes TEXT NOT NULL,
    from_file INTEGER NOT NULL,
    created_at_ms BIGINT NOT NULL
);

CREATE TABLE trunks (
    id TEXT PRIMARY KEY,
    company_id TEXT NOT NULL REFERENCES companies (id),
    uri TEXT NOT NULL,
    caller_id TEXT NOT NULL,
    number_format TEXT NOT NULL,
    accepts TEXT NOT NULL,
    from_file INTEGER NOT NULL,
    enabled INTEGER NOT NULL
);

CREATE TABLE agents (
    id TEXT PRIMARY KEY,
    company_id TEXT NOT NULL REFERENCES companies (id),
    name TEXT NOT NULL,
    direction TEXT NOT NULL,
    trunk_id TEXT,
    phone_number TEXT NOT NULL,
    language TEXT NOT NULL,
    from_file INTEGER NOT NULL,
    enabled INTEGER NOT NULL
);

CREATE TABLE subscriptions (
    id TEXT PRIMARY KEY,
    company_id TEXT NOT NULL REFERENCES companies (id),
    url TEXT NOT NULL,
    events TEXT NOT NULL,
    from_file INTEGER NOT NULL,
    enabled INTEGER NOT NULL
);

CREATE INDEX subscriptions_company ON subscriptions (company_id) WHERE enabled = 1;

-- `stage` is the dispatch ledger's, `status` the API's. `sequence` is that of the call's last event.
CREATE TABLE calls (
    position {serial},
    id TEXT NOT NULL UNIQUE,
    company_id TEXT NOT NULL REFERENCES companies (id),
    agent_id TEXT NOT NULL,
    trunk_id TEXT NOT NULL,
    batch_id TEXT NOT NULL DEFAULT '',
    direction TEXT NOT NULL,
    phone_number TEXT NOT NULL,
    dial_number TEXT NOT NULL,
    webhook_id TEXT NOT NULL,
    variables TEXT NOT NULL,
    metadata TEXT NOT NULL,
    is_test INTEGER NOT NULL,
    status TEXT NOT NULL,
    stage TEXT NOT NULL,
    owner TEXT NOT NULL DEFAULT '',
    epoch BIGINT NOT NULL DEFAULT 0,
    lease_until_ms BIGINT NOT NULL DEFAULT 0,
    hangup_requested INTEGER NOT NULL DEFAULT 0,
    sequence BIGINT NOT NULL DEFAULT 0,
    created_at_ms BIGINT NOT NULL,
    not_before_ms BIGINT NOT NULL,
    dialing_at_ms BIGINT NOT NULL DEFAULT 0,
    ringing_at_ms BIGINT NOT NULL DEFAULT 0,
    answered_at_ms BIGINT NOT NULL DEFAULT 0,
    ended_at_ms BIGINT NOT NULL DEFAULT 0,
    cause TEXT NOT NULL DEFAULT '',
    sip_status INTEGER NOT NULL DEFAULT 0,
    ended_by TEXT NOT NULL DEFAULT '',
    error TEXT NOT NULL DEFAULT '',
    transcript TEXT NOT NULL DEFAULT '[]',
    turns TEXT NOT NULL DEFAULT '[]',
    analysis TEXT NOT NULL DEFAULT '{}',
    recording_path TEXT NOT NULL DEFAULT '',
    recording_url TEXT NOT NULL DEFAULT ''
);

CREATE INDEX calls_queued ON calls (company_id, not_before_ms, position) WHERE stage = 'QUEUED';
CREATE INDEX calls_claimed ON calls (lease_until_ms) WHERE stage = 'CLAIMED';
CREATE INDEX calls_armed ON calls (lease_until_ms) WHERE stage = 'ARMED';
CREATE INDEX calls_company ON calls (company_id, stage);
CREATE INDEX calls_owner ON calls (owner, stage);
CREATE INDEX calls_listed ON calls (company_id, position);

-- One INVITE, or the intention of one: the row is committed before the INVITE leaves.
CREATE TABLE attempts (
    call_id TEXT NOT NULL REFERENCES calls (id),
    number INTEGER NOT NULL,
    epoch BIGINT NOT NULL,
    node TEXT NOT NULL,
    trunk_id TEXT NOT NULL,
    dial_number TEXT NOT NULL,
    sip_call_id TEXT NOT NULL,
    status TEXT NOT NULL,
    cause TEXT NOT NULL DEFAULT '',
    sip_status INTEGER NOT NULL DEFAULT 0,
    started_at_ms BIGINT NOT NULL,
    ended_at_ms BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (call_id, number)
);

-- The last line of defence: while one attempt has no outcome, there cannot be another.
CREATE UNIQUE INDEX attempts_open ON attempts (call_id) WHERE ended_at_ms = 0;

-- What is told to the outside, written in the transaction in which it became true; `body` never changes.
CREATE TABLE outbox (
    position {serial},
    event_id TEXT NOT NULL UNIQUE,
    company_id TEXT NOT NULL,
    call_id TEXT NOT NULL REFERENCES calls (id),
    sequence BIGINT NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    created_at_ms BIGINT NOT NULL,
    UNIQUE (call_id, sequence)
);

CREATE TABLE deliveries (
    id {serial},
    outbox_position BIGINT NOT NULL REFERENCES outbox (position),
    subscription_id TEXT NOT NULL REFERENCES subscriptions (id),
    call_id TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'PENDING',
    attempts INTEGER NOT NULL DEFAULT 0,
    due_at_ms BIGINT NOT NULL,
    settled_at_ms BIGINT NOT NULL DEFAULT 0,
    last_status INTEGER NOT NULL DEFAULT 0,
    last_error TEXT NOT NULL DEFAULT '',
    last_duration_ms INTEGER NOT NULL DEFAULT 0
);

CREATE INDEX deliveries_due ON deliveries (subscription_id, due_at_ms) WHERE state = 'PENDING';
CREATE INDEX deliveries_line ON deliveries (subscription_id, call_id, id) WHERE state = 'PENDING';
CREATE INDEX deliveries_dead ON deliveries (settled_at_ms) WHERE state = 'DEAD';
