"""Tests of the comparison, without any peer."""
