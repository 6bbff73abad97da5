"""The command line: arguments and printing; the work is done by the library."""
