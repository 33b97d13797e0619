-- The log of deliveries: what each attempt came to, and whose it was. `attempts_before` are those before the
-- last replay: a replayed delivery has its whole day of attempts again.

ALTER TABLE deliveries ADD COLUMN company_id TEXT NOT NULL DEFAULT '';

ALTER TABLE deliveries ADD COLUMN attempts_before INTEGER NOT NULL DEFAULT 0;

UPDATE deliveries SET company_id =
    (SELECT o.company_id FROM outbox o WHERE o.position = deliveries.outbox_position);

CREATE TABLE delivery_attempts (
    delivery_id BIGINT NOT NULL REFERENCES deliveries (id),
    number INTEGER NOT NULL,
    ended_at_ms BIGINT NOT NULL,
    duration_ms INTEGER NOT NULL,
    status INTEGER NOT NULL,
    error TEXT NOT NULL,
    response TEXT NOT NULL,
    PRIMARY KEY (delivery_id, number)
);

CREATE INDEX deliveries_listed ON deliveries (company_id, id);
CREATE INDEX deliveries_call ON deliveries (call_id, id);
