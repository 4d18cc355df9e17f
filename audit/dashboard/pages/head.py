"""The page Head."""

from __future__ import annotations

import streamlit as st

st.title("Head")
st.info("This page is not written yet.")
