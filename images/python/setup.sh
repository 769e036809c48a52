# Runs as root inside the new root filesystem, with sh -eu.

# Python checks compiled files against their sources by time, and the times here
# are rewritten; "unchecked" also saves the check at every start.
python3 -m compileall -q -f --invalidation-mode unchecked-hash /usr/lib/python3 /usr/lib/python3.13
