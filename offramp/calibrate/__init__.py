"""Runs what a calibration needs: answers under early exit, compared with full depth, certified. No torch."""
