"""The page Study."""

from __future__ import annotations

import streamlit as st

st.title("Study")
st.info("This page is not written yet.")
