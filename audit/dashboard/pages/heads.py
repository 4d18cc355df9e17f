"""The page Heads."""

from __future__ import annotations

import streamlit as st

st.title("Heads")
st.info("This page is not written yet.")
