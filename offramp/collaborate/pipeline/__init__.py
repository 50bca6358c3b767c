"""Two models behind one name: what the user wrote, what it decides, whether it still does what was calibrated."""
