"""`python -m ninelives` runs the `ninelives` command."""

from ninelives.cli.app import main

if __name__ == "__main__":
    main()
