"""The page Compare."""

from __future__ import annotations

import streamlit as st

st.title("Compare")
st.info("This page is not written yet.")
