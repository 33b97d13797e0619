"""The effects of the table's transitions, each in the file named after the record that the effect changes.

An effect may return an inner event, which the machine then handles at once."""
