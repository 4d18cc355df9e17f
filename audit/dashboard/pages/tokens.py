"""The page Tokens."""

from __future__ import annotations

import streamlit as st

st.title("Tokens")
st.info("This page is not written yet.")
