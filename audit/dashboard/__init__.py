"""The Streamlit app in which people look at audits and decide on heads.

    app           page settings and navigation; `streamlit run app.py` and `audit dashboard` run it
    pages/        one file per page: read the address, get data, guard its states, show
    store         the one place that reads the ledger
    states        what stands where there is nothing to show: no ledger, no such run, no match
    parts         pieces that several pages share
    config.toml   the settings and both themes, for `.streamlit/` and for the installed app

No number is computed and no sentence made here: they come from `report`, `diff` and `records`, so
the command line, the reports and these pages can not disagree. Never imports torch.
"""
