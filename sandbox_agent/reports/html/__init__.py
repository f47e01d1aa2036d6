"""One self-contained page of a session. `dom` makes elements, `page` puts the page together from `page.html`,
`page.css` and `page.js`; the other modules write one section each.

The page is whole without its script, which only hides, opens and finds: no datum is ever given to it.
"""
