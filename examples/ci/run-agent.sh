#!/usr/bin/env bash
# One task for an agent in a pipeline: sets up, runs under a policy, checks the result, writes reports, and ends with an
# exit code that the job can go by. GitHub and GitLab call it as github.yml and gitlab-ci.yml beside it show.
#
#   run-agent.sh TASK        what to do; everything else comes from the environment:
#
#   AGENT_WORKSPACE  the folder to work on                                            default: the current one
#   AGENT_REPORTS    where result.json and the reports go                             default: agent-reports
#   AGENT_MODEL      as --model takes it; ANTHROPIC_API_KEY must be there for a real one
#   AGENT_POLICY     a shipped policy or a file                                       default: ci
#   AGENT_CHECKS     commands that must pass on the result, one a line                default: none
#   AGENT_APPLY      always: the changes are in the folder afterwards                 default: never, they are kept
#   AGENT_MAX_COST   in US dollars
#   AGENT_PASS_ON    exit codes that pass besides 0, as "3" where denials are fine    default: none
#
# The task may be text of a stranger (an issue, a pull request): it is one argument, and no shell ever reads it.
set -euo pipefail
task=${1:?"usage: run-agent.sh TASK (the rest comes from the environment, see the head of this file)"}
reports=${AGENT_REPORTS:-agent-reports}
home=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

# In a checkout of sandbox-agent that is all there is to install; else it is expected on the PATH.
if [ -f "$home/Makefile" ] && [ -d "$home/sandbox_agent" ]; then
    make -C "$home" --no-print-directory setup >&2
    PATH="$home/.venv/bin:$PATH"
fi

options=(--workspace "${AGENT_WORKSPACE:-.}" --policy "${AGENT_POLICY:-ci}" --apply "${AGENT_APPLY:-never}")
[ -z "${AGENT_MODEL:-}" ] || options+=(--model "$AGENT_MODEL")
[ -z "${AGENT_MAX_COST:-}" ] || options+=(--max-cost "$AGENT_MAX_COST")
while IFS= read -r check; do
    [ -z "$check" ] || options+=(--check "$check")
done <<<"${AGENT_CHECKS:-}"

mkdir -p "$reports"
for kind in html=session.html junit=junit.xml sarif=findings.sarif markdown=summary.md; do
    options+=(--report "${kind%%=*}=$reports/${kind#*=}")
done

status=0
result=$(mktemp) # not in the folder that the agent works on
sandbox-agent run --output json "${options[@]}" -- "$task" >"$result" || status=$?
mv "$result" "$reports/result.json"

# What people see first. GitLab has no such page: there the tests tab shows junit.xml.
if [ -n "${GITHUB_STEP_SUMMARY:-}" ] && [ -f "$reports/summary.md" ]; then
    cat "$reports/summary.md" >>"$GITHUB_STEP_SUMMARY"
fi

for passing in ${AGENT_PASS_ON:-}; do
    if [ "$status" = "$passing" ]; then
        echo "run-agent: exit code $status counts as passed here (AGENT_PASS_ON)" >&2
        exit 0
    fi
done
exit "$status"
