"""`python -m quire` is `quire`."""

from quire.cli.app import main

if __name__ == "__main__":
    main()
