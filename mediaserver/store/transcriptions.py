"""Transcriptions with a job id, kept for a day: a client may ask again after a broken connection."""

from __future__ import annotations

from dataclasses import dataclass

from mediaserver.db.database import Tx, values_of

KEPT_MS = 24 * 3600 * 1000
"""How long a transcription is kept: no longer than a retry needs."""

_KEEP = """
INSERT INTO transcriptions (company_id, job_id, file_sha256, transcription, confidence, created_at_ms)
VALUES (:company_id, :job_id, :file_sha256, :transcription, :confidence, {now})
ON CONFLICT (company_id, job_id) DO NOTHING
"""

_FIND = """
SELECT file_sha256, transcription, confidence FROM transcriptions
WHERE company_id = :company_id AND job_id = :job_id AND created_at_ms > {now} - :kept_ms
"""


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """The transcription of a file, by a job."""

    file_sha256: str
    transcription: str
    confidence: float


def find_job(tx: Tx, company_id: str, job_id: str) -> FinishedJob | None:
    """Returns a job of the last day, None for an unknown one."""
    row = tx.row(_FIND, company_id=company_id, job_id=job_id, kept_ms=KEPT_MS)
    if row is None:
        return None
    return FinishedJob(row["file_sha256"], row["transcription"], float(row["confidence"]))


def keep_job(tx: Tx, company_id: str, job_id: str, job: FinishedJob) -> None:
    """Keeps a finished job for a day; one that is kept already stays as it is."""
    tx.run("DELETE FROM transcriptions WHERE created_at_ms <= {now} - :kept_ms", kept_ms=KEPT_MS)
    values = values_of(job, company_id=company_id, job_id=job_id, confidence=repr(job.confidence))
    tx.run(_KEEP, **values)
