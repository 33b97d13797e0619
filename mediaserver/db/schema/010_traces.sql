-- The signalling and the media statistics of a call, one row for each telephone of it (SIP Call-ID). They are kept for
-- as long as the company keeps signalling.

CREATE TABLE call_traces (
    call_id TEXT NOT NULL REFERENCES calls (id) ON DELETE CASCADE,
    sip_call_id TEXT NOT NULL,
    document TEXT NOT NULL,
    PRIMARY KEY (call_id, sip_call_id)
);
