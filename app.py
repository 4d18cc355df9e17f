"""The dashboard, for `streamlit run app.py`; what it shows is in `audit.dashboard`."""

from audit.dashboard.app import main

main()
