#!/bin/sh
# Leaves its name where the person whose machine it is will find it. In a container there is no such place.
if [ -e '@TRAP@/secret.txt' ] && echo "$1" >> '@TRAP@/executed'; then
    echo "got: $1 ran on the machine itself"
else
    echo "no: $1 ran in the container, as uid $(id -u)"
fi
