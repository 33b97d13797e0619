-- What calls are found by beside their own columns, in a table of its own: a list reads no transcript. `words` are all
-- that was said, folded as `mediaserver.queue.search` folds what is asked. A row goes with what it was made of.
CREATE TABLE call_search (
    call_id TEXT PRIMARY KEY REFERENCES calls (id) ON DELETE CASCADE,
    name TEXT NOT NULL DEFAULT '',
    name_words TEXT NOT NULL DEFAULT '',
    disposition TEXT NOT NULL DEFAULT '',
    latency_ms INTEGER NOT NULL DEFAULT 0,
    slowest_ms INTEGER NOT NULL DEFAULT 0,
    words TEXT NOT NULL DEFAULT ''
);

-- Lists are by time, newest first, and each of these filters walks an index of its own.
DROP INDEX calls_listed;

CREATE INDEX calls_listed ON calls (company_id, created_at_ms, position);
CREATE INDEX calls_of_agent ON calls (company_id, agent_id, created_at_ms, position);
CREATE INDEX calls_of_number ON calls (company_id, phone_number, created_at_ms, position);
CREATE INDEX calls_of_batch ON calls (batch_id, created_at_ms, position) WHERE batch_id <> '';
