"""`python -m edgebroker` is the command `edgebroker`."""

from edgebroker.cli import main

if __name__ == "__main__":
    main(prog_name="edgebroker")
