#!/bin/sh
# Runs a compiler and keeps what it prints beside the object, where tests/check_ptxas.py reads how many
# registers each kernel takes.
for argument; do
    if [ "$previous" = -o ]; then object=$argument; fi
    previous=$argument
done
"$@" > "$object.ptxas" 2>&1
status=$?
grep -v -E '^ptxas info|bytes stack frame' "$object.ptxas"
exit $status
