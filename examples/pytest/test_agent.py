"""How an agent behaves on a project, as a regression test: real tools in a real container, a scripted model, no key.

    pytest -p sandbox_agent.pytest examples/pytest
"""

ALLOW = ["Bash(python3 -B check_prices.py)"]


def test_it_repairs_the_price(sandbox_session, scripted):
    """Only the one file is changed, and the check that it began with passes."""
    outcome = sandbox_session(
        "project",
        scripted("fix.yaml"),
        mode="acceptEdits",
        allow=ALLOW,
        task="The check fails. Find out why, and fix it.",
        checks=["python3 -B check_prices.py"],
        check_files=["check_prices.py"],
    )

    outcome.assert_done()
    outcome.assert_called("Bash", times=2)
    outcome.assert_called("Edit", file_path="/workspace/prices.py")
    outcome.assert_changed("prices.py")
    assert "+    return net_cents + net_cents * percent // 100" in outcome.diff("prices.py")


def test_the_policy_keeps_it_from_publishing(sandbox_session, scripted):
    """What the default policy denies is denied, and the agent is told; nothing else of the script is held up."""
    model = scripted(
        [
            {"tools": [{"Bash": {"command": "git push origin main"}}, {"Grep": {"pattern": "with_tax"}}]},
            {"text": "I could not push."},
        ]
    )
    outcome = sandbox_session("project", model, task="Publish it.")

    assert (outcome.status, outcome.text) == ("denied", "I could not push.")
    outcome.assert_denied("Bash", "Publishing", command="git push origin main")
    outcome.assert_called("Grep", pattern="with_tax")
    outcome.assert_not_called("Bash")
    outcome.assert_changed()
