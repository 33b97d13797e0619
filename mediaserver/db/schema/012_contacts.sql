-- An attempt whose number was erased, for as long as the company's contact limit looks back. `fingerprint` is an HMAC of
-- the number under the server's secret key.
CREATE TABLE erased_contacts (
    company_id TEXT NOT NULL REFERENCES companies (id),
    fingerprint TEXT NOT NULL,
    at_ms BIGINT NOT NULL
);

CREATE INDEX erased_contacts_found ON erased_contacts (company_id, fingerprint, at_ms);

-- The run of a node that held the call, by which a node knows a recording as its own that no row names.
ALTER TABLE file_removals ADD COLUMN owner TEXT NOT NULL DEFAULT '';
