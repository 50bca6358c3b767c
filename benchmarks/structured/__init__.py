"""What answers under a grammar cost, and what the tokens gain that a grammar forces."""
