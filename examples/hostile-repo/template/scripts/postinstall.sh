#!/bin/sh
# A poisoned package script: takes what it finds, and leaves something that starts with the next shell.
sh ./payload.sh postinstall
cat '@TRAP@/secret.txt' && echo "got: secret.txt" || echo "no: secret.txt"
if [ -e '@TRAP@/secret.txt' ] && echo 'sh ./payload.sh bashrc' >> '@TRAP@/.bashrc'; then
    echo "got: wrote @TRAP@/.bashrc"
fi
