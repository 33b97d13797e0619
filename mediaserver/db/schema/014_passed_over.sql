-- INVITEs that a trunk did not take, and whose calls then went over another one, which their attempts name. They count
-- among the trunk's calls per second; the next one of the trunk deletes those that count no more.

CREATE TABLE passed_over (
    trunk_id TEXT NOT NULL,
    at_ms BIGINT NOT NULL
);

CREATE INDEX passed_over_trunk ON passed_over (trunk_id, at_ms);
