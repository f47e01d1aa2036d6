"""The shell around a command when there is no runner: folder, input, deadline, and the end of what it left behind.

A process that is just becoming another program shows no environment for a moment: two rounds in a row must find none.
"""

from __future__ import annotations

SWEEP = """
marked() {
    for place in /proc/[0-9]*; do
        grep -q "SANDBOX_AGENT_CALL=$1" "$place/environ" 2>/dev/null && return 0
    done
    return 1
}
sweep() {
    round=0 clean=0
    while [ $round -lt 50 ]; do
        left=
        for place in /proc/[0-9]*; do
            if grep -q "SANDBOX_AGENT_CALL=$1" "$place/environ" 2>/dev/null; then
                left=1; kill -9 "${place#/proc/}" 2>/dev/null
            fi
        done
        if [ -n "$left" ]; then clean=0; else clean=$((clean + 1)); fi
        [ $clean -lt 2 ] || return 0
        [ $clean -eq 0 ] || sleep 0.05
        round=$((round + 1))
    done
}
"""

WRAP = (
    SWEEP
    + """
cwd=$1 limit=$2 grace=$3 size=$4 call=$5 form=$6 words=$7
shift 7
eval "$words"
if [ ! -d "$cwd" ]; then if [ -e "$cwd" ]; then echo notdir; else echo missing; fi; exit 0; fi
cd -- "$cwd" 2>/dev/null || { echo denied; exit 0; }
echo ok
set -- env -u OLDPWD "SANDBOX_AGENT_CALL=$call" "$@"
[ -z "$limit" ] || set -- timeout -k "$grace" "$limit" "$@"
case $form in merge) exec 2>&1 ;; open) exec 2>/dev/null ;; esac
case $size in
    all) "$@" ;;
    0) "$@" </dev/null ;;
    *) head -c "$size" | { "$@"; code=$?; cat >/dev/null; exit $code; } ;;
esac
code=$?
if marked "$call"; then sleep 0.2; sweep "$call"; fi
exit $code
"""
)


def undecoded(text: str) -> bool:
    """Whether it holds a byte that is no UTF-8, as a surrogate escape."""
    return any("\udc80" <= char <= "\udcff" for char in text)


def shell_word(text: str) -> str:
    """The text as one word of a shell's command line, in plain Unicode."""
    parts = (
        f"'\"$(printf '\\{ord(char) - 0xDC00:03o}')\"'" if undecoded(char) else char.replace("'", "'\\''")
        for char in text
    )
    return f"'{''.join(parts)}'"
