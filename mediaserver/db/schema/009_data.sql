-- What is kept for how long, what was erased, what must stay, and who did what.

-- 0: taken away, because its time was over or because it was erased.
ALTER TABLE calls ADD COLUMN transcript_kept INTEGER NOT NULL DEFAULT 1;

ALTER TABLE calls ADD COLUMN signalling_kept INTEGER NOT NULL DEFAULT 1;

ALTER TABLE calls ADD COLUMN erased_at_ms BIGINT NOT NULL DEFAULT 0;

CREATE INDEX calls_transcripts ON calls (company_id, ended_at_ms) WHERE stage = 'FINISHED' AND transcript_kept = 1;
CREATE INDEX calls_signalling ON calls (company_id, ended_at_ms) WHERE stage = 'FINISHED' AND signalling_kept = 1;
CREATE INDEX calls_recordings ON calls (company_id, ended_at_ms) WHERE stage = 'FINISHED' AND recording_path <> '';

-- An event whose content is gone keeps its row: its number in the call's sequence, and its place as a witness.
CREATE INDEX outbox_kept ON outbox (company_id, created_at_ms) WHERE body <> '';

-- An erasure, which stays as the proof of it. `fingerprint` is an HMAC of the number under the server's secret key:
-- whoever has the number and the key can tell that it is meant, nobody can read it.
CREATE TABLE erasures (
    position {serial},
    id TEXT NOT NULL UNIQUE,
    company_id TEXT NOT NULL REFERENCES companies (id),
    fingerprint TEXT NOT NULL,
    key_id TEXT NOT NULL,
    created_at_ms BIGINT NOT NULL
);

CREATE INDEX erasures_listed ON erasures (company_id, position);

-- A call of an erasure. `erased_at_ms` 0: it is not over yet. `events`: how many lost their content.
CREATE TABLE erased_calls (
    erasure_id TEXT NOT NULL REFERENCES erasures (id),
    call_id TEXT NOT NULL REFERENCES calls (id),
    erased_at_ms BIGINT NOT NULL DEFAULT 0,
    events INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (erasure_id, call_id)
);

CREATE INDEX erased_calls_waiting ON erased_calls (call_id) WHERE erased_at_ms = 0;

-- A recording to be removed from the disk of whichever node has it.
CREATE TABLE file_removals (
    call_id TEXT PRIMARY KEY REFERENCES calls (id),
    node_url TEXT NOT NULL,
    reason TEXT NOT NULL,
    created_at_ms BIGINT NOT NULL,
    removed_at_ms BIGINT NOT NULL DEFAULT 0,
    removed_by TEXT NOT NULL DEFAULT ''
);

CREATE INDEX file_removals_waiting ON file_removals (created_at_ms) WHERE removed_at_ms = 0;

-- A legal hold: what is kept of these calls stays, whatever retention says, and is not erased. `spellings`: the number
-- as carriers write it, each between "|".
CREATE TABLE holds (
    position {serial},
    id TEXT NOT NULL UNIQUE,
    company_id TEXT NOT NULL REFERENCES companies (id),
    call_id TEXT NOT NULL,
    phone_number TEXT NOT NULL,
    spellings TEXT NOT NULL,
    reason TEXT NOT NULL,
    created_at_ms BIGINT NOT NULL
);

CREATE INDEX holds_company ON holds (company_id);

-- Who changed, listened, exported, erased what. Rows are only added.
CREATE TABLE audit (
    position {serial},
    company_id TEXT NOT NULL,
    key_id TEXT NOT NULL,
    request_id TEXT NOT NULL,
    operation TEXT NOT NULL,
    subject TEXT NOT NULL,
    created_at_ms BIGINT NOT NULL
);

CREATE INDEX audit_listed ON audit (company_id, position);
