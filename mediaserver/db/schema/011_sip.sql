-- What SIP said of a call (headers, identity, reasons), and the header fields that its INVITE is to carry; JSON.
ALTER TABLE calls ADD COLUMN sip TEXT NOT NULL DEFAULT '{}';
