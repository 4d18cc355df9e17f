"""A Run becomes something to read. Every number and sentence comes from the Run alone."""
