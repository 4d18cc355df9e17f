"""New audit: choose files that the server may read, start an audit, watch it, land on its head."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from audit.dashboard import address, choosing, parts, serving, states, store
from audit.dashboard.app import page_file
from audit.dashboard.choosing import Asked, Choice
from audit.dashboard.jobs import earlier_table, job_card
from audit.dashboard.words import safe
from audit.errors import AuditError
from audit.jobs import UPLOAD_BYTES, Job, JobQueue, Upload
from audit.jobs.places import jobs_folder, ledger_place
from audit.jobs.uploads import SUFFIXES

_WATCHED = "job"
"""The job that this visitor started: in the address, so that a reload finds it again."""
_FOLLOW = "new-audit-follow"
"""The job whose head is opened when it is done: not one that was done before it was looked at."""
_STARTED = "new-audit-started"
"""All jobs of this visit: their ends are told in full, also where another one is waited for."""
_REFUSED = "new-audit-refused"
_POLL_SECONDS = 1.0
_EARLIER = 10


def _page() -> None:
    parts.heading("New audit", "What did a cut cost? The same as audit compare, in the background.")
    address.tell_names(_WATCHED)
    with states.guarded():
        queue = JobQueue(jobs_folder(store.open_here()))
        jobs = _look(queue)
    _tell_unknown(jobs)
    _follow(jobs)
    busy = any(job.is_open for job in jobs)
    if jobs:
        st.fragment(_jobs, run_every=_POLL_SECONDS if busy else None)(queue, _open_ids(jobs))
    _form(queue)


def _look(queue: JobQueue) -> list[Job]:
    """All jobs; one that nobody works at any more gets a worker."""
    queue.wake()
    return queue.jobs()


def _tell_unknown(jobs: Sequence[Job]) -> None:
    asked, known = st.query_params.get(_WATCHED), [job.id for job in jobs]
    if asked is not None and asked not in known:
        states.unknown_value(_WATCHED, asked, known[:_EARLIER] or ["none yet"])


def _open_ids(jobs: Sequence[Job]) -> list[str]:
    return [job.id for job in jobs if job.is_open]


def _follow(jobs: Sequence[Job]) -> None:
    """To the head of the audit that was waited for."""
    wanted = st.session_state.get(_FOLLOW)
    job = next((one for one in jobs if one.id == wanted), None)
    if job is None or job.is_open:
        return
    del st.session_state[_FOLLOW]
    if job.state is not None and job.state.run:
        st.switch_page(page_file("head"), query_params={"run": job.state.run})


def _jobs(queue: JobQueue, open_before: Sequence[str]) -> None:
    """What runs and waits, and how the watched one ended; drawn again every second."""
    with states.guarded():
        jobs = _look(queue)
    if _open_ids(jobs) != list(open_before):
        st.rerun(scope="app")
    mine = [st.query_params.get(_WATCHED), *st.session_state.get(_STARTED, ())]
    shown = [job for job in jobs if job.is_open or job.id in mine]
    for job in reversed(shown):
        job_card(job, queue.cancel)
    earlier = [job for job in jobs if job not in shown]
    if earlier:
        with st.expander(f"Earlier audits ({len(earlier)})", icon=":material/history:"):
            earlier_table(earlier[:_EARLIER])


def _form(queue: JobQueue) -> None:
    st.subheader("What is compared", anchor=False)
    served = serving.served_files()
    if served is None:
        st.info(
            safe(
                "This server was given no folder of files to audit: audit dashboard --files DIR "
                "gives one, or AUDIT_FILES. Uploads and the sample work all the same."
            ),
            icon=":material/folder_off:",
        )
    uploads = st.file_uploader(
        "upload heads, traces, ranks or a policy", [suffix.lstrip(".") for suffix in SUFFIXES],
        accept_multiple_files=True, key="uploads", max_upload_size=UPLOAD_BYTES >> 20,
        help="They are kept with the audit. Large files belong into the served folder.",
    )  # fmt: skip
    try:
        known = choosing.choices(served, [upload.name for upload in uploads])
    except AuditError as error:
        states.show_error(error)
        known = choosing.choices(None, [])
    asked = _choose(known)
    if refused := st.session_state.pop(_REFUSED, None):
        states.show_error(refused)
    if st.button("Start the audit", type="primary", icon=":material/play_arrow:"):
        _start(queue, asked, known, [Upload(upload.name, upload) for upload in uploads])


def _choose(known: dict[str, Choice]) -> Asked:
    def label(key: str) -> str:
        return known[key].label if key in known else key

    left, right = st.columns(2)
    with left:
        ref = st.selectbox(
            "reference", choosing.of_kinds(known, "head"), index=None, format_func=label,
            placeholder="the head before the cut", key="ref",
        )  # fmt: skip
        cands = st.multiselect(
            "candidates", choosing.of_kinds(known, "head", "ranks"), format_func=label,
            placeholder="one cut or more, or a list of ranks", key="cands",
        )  # fmt: skip
    with right:
        traces = st.multiselect(
            "traces", choosing.of_kinds(known, "trace"), format_func=label, key="traces",
            placeholder="files or folders; else those beside the reference",
        )  # fmt: skip
        policy = st.selectbox(
            "policy", choosing.of_kinds(known, "policy"), index=None, format_func=label,
            placeholder="none: measure without a gate", key="policy",
        )  # fmt: skip
    narrow, wide = st.columns(2, vertical_alignment="bottom")
    with narrow:
        head = st.text_input(
            "head", key="head", max_chars=40, placeholder="as the files say; or lm, mtp, exit:16, …"
        )
    with wide:
        kl = st.checkbox("also measure KL, which takes longer", key="kl")
    return Asked(ref, tuple(cands), tuple(traces), policy, head, kl)


def _start(
    queue: JobQueue, asked: Asked, known: dict[str, Choice], uploads: Sequence[Upload]
) -> None:
    ledger = ledger_place(store.open_here())
    used = {*asked.cands, *asked.traces, asked.ref, asked.policy}
    try:
        job = queue.submit(
            [one for one in uploads if choosing.upload_key(one.name) in used],
            request=lambda folder: {
                "ledger": ledger,
                **choosing.request_fields(asked, known, serving.served_files(), folder),
            },
        )
    except AuditError as error:
        st.session_state[_REFUSED] = error
    else:
        st.session_state[_FOLLOW] = st.query_params[_WATCHED] = job
        st.session_state[_STARTED] = [*st.session_state.get(_STARTED, ()), job]
    st.rerun()


_page()
