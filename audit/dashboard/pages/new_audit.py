"""The page New audit."""

from __future__ import annotations

import streamlit as st

st.title("New audit")
st.info("This page is not written yet.")
