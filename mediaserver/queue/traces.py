"""What was signalled in a call, and how its media fared, as rows beside the call's own."""

from __future__ import annotations

import json
from typing import Any

from mediaserver.db.database import Tx

# A leg of a call that has no row (a room's), or whose signalling was taken away meanwhile, is kept nowhere.
_KEEP = """
INSERT INTO call_traces (call_id, sip_call_id, document)
SELECT :call_id, :sip_call_id, :document
WHERE EXISTS (SELECT 1 FROM calls WHERE id = :call_id AND signalling_kept = 1)
ON CONFLICT (call_id, sip_call_id) DO UPDATE SET document = excluded.document
"""


def keep(tx: Tx, call_id: str, sip_call_id: str, document: dict[str, Any]) -> bool:
    """Writes the trace of one telephone of a call, in place of an earlier one. False: there is no such
    call, or its signalling is not kept any more."""
    written = tx.run(_KEEP, call_id=call_id, sip_call_id=sip_call_id, document=json.dumps(document))
    return written > 0


def find(tx: Tx, call_id: str) -> list[dict[str, Any]]:
    """Returns the traces of a call's telephones; whose call it is was checked before."""
    rows = tx.rows("SELECT document FROM call_traces WHERE call_id = :call_id", call_id=call_id)
    return [json.loads(row["document"]) for row in rows]
