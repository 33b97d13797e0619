-- Telephones that take part in a call beside the one it began with: called into a room, or handed the caller. They
-- count as calls of their company and their trunk for as long as their call lasts, so a node that is lost frees them.

CREATE TABLE legs (
    id TEXT PRIMARY KEY,
    call_id TEXT NOT NULL,
    company_id TEXT NOT NULL REFERENCES companies (id),
    trunk_id TEXT NOT NULL,
    started_at_ms BIGINT NOT NULL
);

CREATE INDEX legs_company ON legs (company_id);
CREATE INDEX legs_trunk ON legs (trunk_id);
