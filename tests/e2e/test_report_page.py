"""The page of a session in a real browser: keys, search, filters, size, speed, and that hostile content does nothing.

Chromium is too large for the CI: these run with `make soak`. What of the page can be told without a browser is in
tests/unit.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from chromium import Browser, chromium

from sandbox_agent.events import Event
from sandbox_agent.reports.kinds import KINDS

sys.path.append(str(Path(__file__).parents[1] / "unit"))

from report_rig import everything, long_session, story
from test_reports_hostile import PAYLOADS, hostile

pytestmark = pytest.mark.soak

CURRENT = "document.querySelector('.item.current')"
SHOWN = "[...document.querySelectorAll('#timeline .item')].filter(i => i.getClientRects().length)"


def written(folder: Path, events: list[Event]) -> Path:
    path = folder / "page.html"
    path.write_text(KINDS["html"](story(events)), encoding="utf-8")
    return path


LOADED = "(e => e.loadEventEnd - e.startTime)(performance.getEntriesByType('navigation')[0])"
SEARCH_MS = """
new Promise((done) => {
  const search = document.getElementById("search"), began = performance.now();
  search.value = "module_99";
  search.dispatchEvent(new Event("input"));
  const look = () => {
    if (document.documentElement.classList.contains("narrowed")) done(performance.now() - began);
    else requestAnimationFrame(look);
  };
  look();
})
"""
TOO_WIDE = """
[...document.querySelectorAll("main *")]
  .filter((e) => !e.closest("pre, .scroll, svg") && e.getBoundingClientRect().right > innerWidth + 1)
  .map((e) => e.className)
"""


async def current(page: Browser) -> str | None:
    found = await page.value(f"{CURRENT} && {CURRENT}.textContent.trim().replace(/\\s+/g, ' ').slice(0, 60)")
    return None if found is None else str(found)


async def test_keys_move_open_search_and_explain(tmp_path: Path) -> None:
    """As the help on the page says."""
    async with chromium(tmp_path / "profile") as page:
        await page.open(written(tmp_path, everything()))
        await page.press("j")
        first = await current(page)
        assert first is not None
        assert "session" in first
        await page.press("n")
        await page.press("o")
        assert await page.value(f"{CURRENT}.matches('details.failed[open]')")
        await page.press("p")
        await page.press("k")
        assert await page.value(f"document.activeElement === {CURRENT} || {CURRENT}.contains(document.activeElement)")
        await page.press("G")
        last = await current(page)
        assert last is not None
        assert "Applied to the folder" in last
        await page.press("/")
        await page.type("git push")
        await page.until("document.documentElement.classList.contains('narrowed')")
        assert await page.value(f"{SHOWN}.map(i => i.querySelector('code')?.textContent)") == ["git push"]
        await page.press("Escape")
        assert await page.value(f"{SHOWN}.length") > 20
        await page.press("?")
        assert await page.value("document.getElementById('help').open")
        await page.press("Escape")
        before = await page.value("getComputedStyle(document.body).backgroundColor")
        await page.press("t")
        assert await page.value("getComputedStyle(document.body).backgroundColor") != before


async def test_filters_keep_what_a_nested_call_hangs_on_and_links_open_it(tmp_path: Path) -> None:
    """A sub-agent's call is found, and a link to it opens all that it is in."""
    async with chromium(tmp_path / "profile") as page:
        await page.open(written(tmp_path, everything()))
        await page.value(
            "[...document.querySelectorAll('#filters button')].find(b => b.dataset.kind === 'denied').click()"
        )
        assert await page.value(f"{SHOWN}.length") == 1
        await page.value("document.querySelector('#filters button').click()")
        await page.press("/")
        await page.type("quote.py:8")
        await page.until("document.documentElement.classList.contains('narrowed')")
        nested = "[...document.querySelectorAll('.agent .call')][0]"
        assert not await page.value(f"{nested}.classList.contains('gone')")
        await page.value(f"location.hash = {nested}.id")
        await page.until(f"{nested}.open && {nested}.getClientRects().length > 0")


@pytest.mark.parametrize("payload", PAYLOADS)
async def test_hostile_content_does_nothing(tmp_path: Path, payload: str) -> None:
    """No request, no script, no violation of the page's own policy, no link that leads away."""
    async with chromium(tmp_path / "profile") as page:
        await page.open(written(tmp_path, hostile(payload)))
        await page.value("document.querySelectorAll('details').forEach(one => one.open = true)")
        await page.until("document.querySelectorAll('details:not([open])').length === 0")
        requests = [
            one["params"]["request"]["url"] for one in page.told if one.get("method") == "Network.requestWillBeSent"
        ]
        assert [url for url in requests if not url.endswith("page.html")] == []
        assert not [one for one in page.told if one.get("method") in ("Log.entryAdded", "Page.javascriptDialogOpening")]
        assert await page.value("[...document.links].every(a => a.getAttribute('href').startsWith('#'))")
        assert await page.value("document.scripts.length") == 1


@pytest.mark.parametrize("width", [1400, 390])
async def test_a_thousand_events_are_there_within_a_second(tmp_path: Path, width: int) -> None:
    """And nothing is wider than the screen; a search is done in a third of one, and a link leads to its place."""
    async with chromium(tmp_path / "profile", width=width) as page:
        path = written(tmp_path, long_session(1_000, output="line of output, as programs write it\n" * 250))
        await page.open(path)
        timing = await page.value(LOADED)
        await page.until("performance.getEntriesByType('paint').length > 0")
        painted = await page.value("performance.getEntriesByType('paint').map(p => p.startTime)[0]")
        took = await page.value(SEARCH_MS)
        size = path.stat().st_size
        print(f"{width} px: {size:,} bytes, load {timing:.0f} ms, first paint {painted:.0f} ms, search {took:.0f} ms")
        assert size < 3_000_000
        assert timing < 1_000
        assert took < 330
        wide = await page.value("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0
        await page.press("Escape")
        for place in ("length - 30", "length >> 1", "length - 1"):  # what was not laid out yet is found, too
            call = f"(calls => calls[calls.{place}])(document.querySelectorAll('#timeline .call')).firstElementChild"
            await page.value(f"location.hash = {call}.parentElement.id")
            await page.until(f"(r => r.top >= 0 && r.bottom <= innerHeight)({call}.getBoundingClientRect())")


async def test_the_page_fits_a_phone(tmp_path: Path) -> None:
    """With everything open."""
    async with chromium(tmp_path / "profile", width=390, height=800) as page:
        await page.open(written(tmp_path, everything()))
        await page.value("document.querySelectorAll('details').forEach(one => one.open = true)")
        assert await page.value(TOO_WIDE) == []
