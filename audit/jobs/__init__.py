"""Audits in the background: a queue of `audit compare` processes, one at a time.

    JOBS/<id>/request.json    what is wanted; written by whoever submits, whole, and never changed
    JOBS/<id>/files/          uploads that belong to it
    JOBS/<id>/cancel          that it is not wanted any more; may appear at any time
    JOBS/<id>/state.json      what became of it; written by the worker alone
    JOBS/<id>/stdout, stderr, progress     what the audit itself says
    JOBS/worker.lock          held by the one worker of this queue as long as it lives

Every file has one writer, so nothing has to be agreed upon: any number of dashboards may look at a
queue, add to it and be restarted. The worker is a process of its own, holds the lock, runs jobs in
the order of their ids, and ends when there is none left. A job that a killed worker left behind is
taken over by the next one, recognised by its pid and start time. Results are runs in the ledger;
a queue remembers only what was asked. `files` says which files of the server may be named at all,
`places` where a ledger's queue lies; it loads the ledger, so a worker, which needs none, leaves it.

No Streamlit and no torch here: the page that shows a queue is in the dashboard, and the audit loads
torch in a process of its own, which may run out of memory without taking anything else with it.
"""

from audit.jobs.files import ServedFile, ServedFiles
from audit.jobs.queue import Job, JobQueue, Upload
from audit.jobs.records import JobError, JobRequest, JobState
from audit.jobs.uploads import UPLOAD_BYTES, safe_name

__all__ = [
    "UPLOAD_BYTES",
    "Job",
    "JobError",
    "JobQueue",
    "JobRequest",
    "JobState",
    "ServedFile",
    "ServedFiles",
    "Upload",
    "safe_name",
]
