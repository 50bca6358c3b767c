"""`python -m offramp` is the command line."""

from offramp.cli import main

if __name__ == "__main__":
    main()
