-- Where the node that has a call's recording is reached by the others (server.node_url); '' where it says nothing.

ALTER TABLE calls ADD COLUMN recording_node TEXT NOT NULL DEFAULT '';

-- Rooms that nobody can join any more are deleted.
CREATE INDEX web_rooms_age ON web_rooms (expires_at_ms);
