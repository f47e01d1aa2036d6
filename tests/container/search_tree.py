"""The tree that the tests of Grep and Glob search, made in the container."""

from __future__ import annotations

TREE = r"""
mkdir -p .github/workflows .git build src/deep sub 'we ird' many linked
git init -q .
echo TOKEN > .github/workflows/ci.yml
echo TOKEN > .git/description
echo TOKEN > build/out.txt
printf 'build/\n*.log\n!keep.log\n/anchored.txt\n' > .gitignore
echo TOKEN > a.log; echo TOKEN > keep.log; echo TOKEN > anchored.txt; echo TOKEN > sub/anchored.txt
printf 'one TOKEN\ntwo\n\nfour TOKEN x TOKEN\nfive\n' > src/a.py
printf 'zero\r\nTOKEN\r\n' > src/deep/b.py
echo TOKEN > 'we ird/c:1:d.txt'
printf 'TOKEN\0bin\n' > bin.dat
{ printf 'LONG '; head -c 600000 /dev/zero | tr '\0' x; echo ' LONG'; } > long.txt
printf 'caf\351 LATIN\n' > latin.txt
for n in $(seq 300); do echo "MANY $n" > many/$(printf %03d $n).txt; done
ln -s /workspace/src linked/src
"""
