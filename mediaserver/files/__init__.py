"""Files of the server: closed to other users, and recordings sealed at rest."""
