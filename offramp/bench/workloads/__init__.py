"""What is run: prompts with, where there are any, references and tests to judge answers by."""
