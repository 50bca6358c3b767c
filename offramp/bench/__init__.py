"""Measurements: what a step costs on this machine."""
