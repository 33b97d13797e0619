-- What files sent with a job_id came to, for a day: the same job is not transcribed twice.

CREATE TABLE transcriptions (
    company_id TEXT NOT NULL REFERENCES companies (id),
    job_id TEXT NOT NULL,
    file_sha256 TEXT NOT NULL,
    transcription TEXT NOT NULL,
    confidence TEXT NOT NULL,
    created_at_ms BIGINT NOT NULL,
    PRIMARY KEY (company_id, job_id)
);

CREATE INDEX transcriptions_age ON transcriptions (created_at_ms);
