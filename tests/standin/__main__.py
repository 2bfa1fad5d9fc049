"""Builds the library; with ``--environment`` prints what a command has to be given instead."""

import sys

import standin

if sys.argv[1:] == ["--environment"]:
    print(*(f"{name}={value}" for name, value in standin.environment().items()))
else:
    standin.build()
