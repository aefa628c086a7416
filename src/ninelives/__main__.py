"""`python -m ninelives` is the command `ninelives`."""

from ninelives.cli.app import main

if __name__ == "__main__":
    main()
