"""The page Review."""

from __future__ import annotations

import streamlit as st

st.title("Review")
st.info("This page is not written yet.")
