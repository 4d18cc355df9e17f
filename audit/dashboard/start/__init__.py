"""The script that `audit dashboard` gives to Streamlit, alone in a folder.

Streamlit takes a folder `pages` beside its script for pages of its own, and puts the script's
folder before all others on Python's path.
"""
