"""The page Methods."""

from __future__ import annotations

import streamlit as st

st.title("Methods")
st.info("This page is not written yet.")
