"""Comparisons with other engines on the same machine in the same run. Outside the package; see README.md."""
